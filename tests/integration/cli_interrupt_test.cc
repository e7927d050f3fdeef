// keval run interrupted while its job is being made, against a service whose Create takes its time.
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <csignal>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/mutex.h"
#include "keval/v1/benchmark.grpc.pb.h"
#include "tests/integration/cli_process.h"
#include "tests/support/temp_dir.h"

namespace keval {
namespace {

using test_support::CliProcess;
using test_support::CliResult;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kName[] = "jobs/0123456789abcdef0123456789abcdef";

// Holds the first `held` calls of Create until their caller goes; the job is made all the same.
class SlowService final : public v1::BenchmarkService::Service {
 public:
  explicit SlowService(int held) : held_(held) {}

  grpc::Status Create(grpc::ServerContext* context, const v1::CreateJobRequest* request,
                      v1::BenchmarkJob* response) override {
    bool hold = false;
    {
      MutexLock lock(&mutex_);
      request_ids_.push_back(request->request_id());
      hold = static_cast<int>(request_ids_.size()) <= held_;
    }
    while (hold && !context->IsCancelled()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    response->set_name(kName);
    response->set_state(v1::BenchmarkJob::QUEUED);
    return grpc::Status::OK;
  }
  grpc::Status Cancel(grpc::ServerContext* /*context*/, const v1::CancelJobRequest* request,
                      v1::BenchmarkJob* response) override {
    MutexLock lock(&mutex_);
    cancelled_.push_back(request->name());
    response->set_name(request->name());
    response->set_state(v1::BenchmarkJob::CANCELLED);
    return grpc::Status::OK;
  }

  std::vector<std::string> request_ids() {
    MutexLock lock(&mutex_);
    return request_ids_;
  }
  std::vector<std::string> cancelled() {
    MutexLock lock(&mutex_);
    return cancelled_;
  }

 private:
  const int held_;
  Mutex mutex_;
  std::vector<std::string> request_ids_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> cancelled_ ABSL_GUARDED_BY(mutex_);
};

class CliInterruptTest : public ::testing::Test {
 protected:
  // Interrupts `keval run` once its first Create has arrived at `service`.
  CliResult RunAndInterrupt(SlowService* service, const std::vector<std::string>& more = {}) {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(service);
    const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
    const std::string spec = folder_.path() + "/spec.json";
    std::ofstream(spec) << R"({"primaries": [{"num_tokens": 8, "hidden_size": 8, "vocab_size": 16}]})";
    std::vector<std::string> arguments = {"run", spec, "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    CliProcess process(folder_.path(), arguments, {{"KEVAL_SERVER", absl::StrCat("127.0.0.1:", port)}});
    const absl::Time deadline = absl::Now() + absl::Seconds(60);
    while (service->request_ids().empty() && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(5));
    process.Signal(SIGINT);
    CliResult result = process.Wait(absl::Seconds(60));
    server->Shutdown();
    return result;
  }

  const testing::TempDir folder_;
};

TEST_F(CliInterruptTest, TheJobIsFoundByItsRequestIdAndCancelled) {
  SlowService service(1);
  const CliResult run = RunAndInterrupt(&service);
  EXPECT_EQ(run.code, 7) << run.err;
  EXPECT_THAT(run.out, HasSubstr(kName));
  ASSERT_EQ(service.request_ids().size(), 2U);
  EXPECT_THAT(service.request_ids()[0], Not(IsEmpty()));
  EXPECT_EQ(service.request_ids()[0], service.request_ids()[1]);
  EXPECT_THAT(service.cancelled(), ElementsAre(kName));
}

TEST_F(CliInterruptTest, AGivenRequestIdIsKept) {
  SlowService service(1);
  EXPECT_EQ(RunAndInterrupt(&service, {"--request_id", "nightly-7"}).code, 7);
  EXPECT_THAT(service.request_ids(), ElementsAre("nightly-7", "nightly-7"));
}

TEST_F(CliInterruptTest, AServerThatDoesNotAnswerIsNotWaitedForAndThePersonIsTold) {
  SlowService service(1000);
  const absl::Time begin = absl::Now();
  const CliResult run = RunAndInterrupt(&service);
  EXPECT_EQ(run.code, 7);
  EXPECT_LT(absl::Now() - begin, absl::Seconds(30));
  EXPECT_THAT(run.err, HasSubstr("it may be queued: see keval list"));
  EXPECT_THAT(service.cancelled(), IsEmpty());
}

}  // namespace
}  // namespace keval
