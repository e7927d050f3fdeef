// Paired jobs of a real kevald with real workers: killed, resumed, cancelled, and recomputed from their report.
#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/sha256.h"
#include "core/verdict/json.h"
#include "core/verdict/verdict.h"
#include "keval/v1/benchmark.grpc.pb.h"
#include "tests/integration/server_calls.h"
#include "tests/support/server_process.h"
#include "tests/support/temp_dir.h"

namespace keval {
namespace {

using test_support::Connect;
using test_support::ServerProcess;

constexpr const char* kProgram = KEVAL_BIN_DIR "/kevald";

// Calls of microseconds, so that the time goes into what is tested. `looks`: rounds of the only look.
v1::BenchmarkSpec SmallSpec(int rounds) {
  v1::BenchmarkSpec spec;
  spec.mutable_target()->set_device("cpu");
  spec.mutable_target()->set_force_variant(true);
  for (v1::Shape* shape : {spec.add_primaries(), spec.add_guards()}) {
    shape->set_num_tokens(16);
    shape->set_hidden_size(8);
    shape->set_vocab_size(64);
    shape->set_bias(true);
  }
  spec.mutable_guards(0)->set_num_tokens(32);
  spec.mutable_procedure()->add_looks(rounds);
  spec.mutable_procedure()->set_quads(3);
  spec.mutable_procedure()->set_timed_repetitions(2);
  spec.mutable_procedure()->set_discarded_repetitions(1);
  spec.set_seed(9007199254740993);
  return spec;
}

// Base against itself: whatever such a job finds, an improvement or a regression is wrong.
v1::BenchmarkSpec SameArmsSpec() {
  v1::BenchmarkSpec spec = SmallSpec(6);
  spec.clear_guards();
  spec.mutable_candidate()->set_variant("portable_matmul_add");
  v1::Shape* const shape = spec.mutable_primaries(0);
  shape->set_num_tokens(64);
  shape->set_hidden_size(64);
  shape->set_vocab_size(1024);
  spec.mutable_procedure()->clear_looks();
  for (const int look : {6, 10}) spec.mutable_procedure()->add_looks(look);
  return spec;
}

// A process for each core that does nothing but use it, until the object goes, or 5 minutes at most.
class ForeignLoad {
 public:
  ForeignLoad() {
    for (unsigned i = 0; i < std::max(1U, std::thread::hardware_concurrency()); ++i) {
      const pid_t pid = fork();
      if (pid == 0) {
        alarm(300);
        for (std::atomic<unsigned> n{0};; ++n) {
        }
      }
      burners_.push_back(pid);
    }
  }
  ~ForeignLoad() {
    for (const pid_t pid : burners_) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
  }
  ForeignLoad(const ForeignLoad&) = delete;
  ForeignLoad& operator=(const ForeignLoad&) = delete;

 private:
  std::vector<pid_t> burners_;
};

class JobProcessTest : public ::testing::Test {
 protected:
  ServerProcess StartServer() {
    auto started = ServerProcess::Start({kProgram, folder_.path()});
    if (!started.ok()) ADD_FAILURE() << started.status();
    ServerProcess server = *std::move(started);
    stub_ = v1::BenchmarkService::NewStub(Connect(server.control()));
    return server;
  }

  v1::BenchmarkJob Create(const v1::BenchmarkSpec& spec, const std::string& request_id) {
    grpc::ClientContext context;
    v1::CreateJobRequest request;
    *request.mutable_spec() = spec;
    request.set_request_id(request_id);
    v1::BenchmarkJob job;
    const grpc::Status status = stub_->Create(&context, request, &job);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return job;
  }

  // Appends events until `stop` says so (the call is then cancelled) or the stream ends.
  template <typename Stop>
  grpc::Status Watch(const std::string& name, std::vector<v1::JobEvent>* events, Stop stop) {
    grpc::ClientContext context;
    v1::WatchJobRequest request;
    request.set_name(name);
    request.set_after_sequence(events->empty() ? 0 : events->back().sequence());
    const auto reader = stub_->Watch(&context, request);
    for (v1::JobEvent event; reader->Read(&event);) {
      events->push_back(event);
      if (stop(event)) context.TryCancel();
    }
    return reader->Finish();
  }

  std::map<std::string, std::string> Report(const std::string& name) {
    grpc::ClientContext context;
    v1::GetReportRequest request;
    request.set_name(name);
    const auto reader = stub_->GetReport(&context, request);
    std::map<std::string, std::string> files;
    std::string file;
    for (v1::GetReportResponse piece; reader->Read(&piece);) {
      if (!piece.file_name().empty()) file = piece.file_name();
      files[file] += piece.data();
      if (!piece.sha256().empty()) {
        EXPECT_EQ(piece.sha256(), Sha256Bytes(files[file]));
      }
    }
    const grpc::Status status = reader->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    return files;
  }

  const testing::TempDir folder_;
  std::unique_ptr<v1::BenchmarkService::Stub> stub_;
};

TEST_F(JobProcessTest, AKilledServersJobGoesOnAndItsReportRecomputes) {
  const v1::BenchmarkSpec spec = SmallSpec(5);
  std::vector<v1::JobEvent> events;
  std::string name;
  {
    ServerProcess server = StartServer();
    name = Create(spec, "once").name();
    Watch(name, &events, [](const v1::JobEvent& event) { return event.round_done().round() == 2; });
    server.Signal(SIGKILL);
    EXPECT_EQ(server.Wait(absl::Seconds(10)), 128 + SIGKILL);
  }
  ASSERT_FALSE(events.empty());
  ASSERT_GE(events.back().round_done().round(), 2);

  ServerProcess server = StartServer();
  EXPECT_EQ(Create(spec, "once").name(), name);
  const grpc::Status status = Watch(name, &events, [](const v1::JobEvent&) { return false; });
  EXPECT_TRUE(status.ok()) << status.error_message();
  int rounds = 0;
  for (std::size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i].sequence(), static_cast<std::int64_t>(i) + 1);
    if (events[i].has_round_done()) {
      EXPECT_EQ(events[i].round_done().round(), ++rounds);
    }
  }
  EXPECT_EQ(rounds, 5);
  const v1::BenchmarkJob& job = events.back().job();
  EXPECT_EQ(job.state(), v1::BenchmarkJob::DONE);
  EXPECT_EQ(job.restarts(), 1);
  EXPECT_THAT(job.verdict(), ::testing::AnyOf("INCONCLUSIVE", "IMPROVED", "REGRESSED", "EQUIVALENT")) << job.detail();

  const auto files = Report(name);
  const auto report = nlohmann::json::parse(files.at("report.json"));
  EXPECT_EQ(report.at("verdict"), job.verdict());
  EXPECT_EQ(report.at("plan").at("seed"), 9007199254740993U);
  EXPECT_EQ(report.at("rounds").size(), 5U);
  EXPECT_EQ(report.at("contract").at("passed"), true);
  EXPECT_EQ(report.at("memory"), job.reason() == "MEMORY" ? "not_met" : "met");  // Recorded, that is.
  EXPECT_FALSE(report.at("series")[0].at("dispatch").at("candidate").at("path").get<std::string>().empty());
  const auto samples = verdict::ParseSamples(files.at("samples.csv"));
  ASSERT_TRUE(samples.ok()) << samples.status();
  EXPECT_EQ(samples->size(), 5U * 3 * 3 * 4 * 2);  // Rounds, series, quads, positions, repetitions.
  const auto config = verdict::ConfigFromJson(files.at("report.json"));
  ASSERT_TRUE(config.ok()) << config.status();
  const auto outcome = verdict::Decide(*samples, *config);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  if (job.reason() != "MEMORY") {
    EXPECT_EQ(outcome->verdict, job.verdict());
  }
}

TEST_F(JobProcessTest, ACancelledJobEndsAndTheServerStopsAtOnce) {
  ServerProcess server = StartServer();
  const std::string name = Create(SmallSpec(200), "").name();
  std::vector<v1::JobEvent> events;
  Watch(name, &events, [](const v1::JobEvent& event) { return event.has_round_done(); });
  grpc::ClientContext context;
  v1::CancelJobRequest request;
  request.set_name(name);
  v1::BenchmarkJob job;
  ASSERT_TRUE(stub_->Cancel(&context, request, &job).ok());
  EXPECT_EQ(job.state(), v1::BenchmarkJob::CANCELLED);
  EXPECT_TRUE(Watch(name, &events, [](const v1::JobEvent&) { return false; }).ok());
  EXPECT_EQ(events.back().job().state(), v1::BenchmarkJob::CANCELLED);
  EXPECT_EQ(nlohmann::json::parse(Report(name).at("report.json")).at("state"), "CANCELLED");
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(absl::Seconds(30)), 0);
}

TEST_F(JobProcessTest, AForeignLoadFromTheMiddleOnNeverMakesAVerdictWrong) {
  ServerProcess server = StartServer();
  const std::string name = Create(SameArmsSpec(), "").name();
  std::vector<v1::JobEvent> events;
  Watch(name, &events, [](const v1::JobEvent& event) { return event.round_done().round() == 3; });
  {
    const ForeignLoad load;
    Watch(name, &events, [](const v1::JobEvent&) { return false; });
  }
  const v1::BenchmarkJob& job = events.back().job();
  ASSERT_EQ(job.state(), v1::BenchmarkJob::DONE);
  EXPECT_THAT(job.verdict(), ::testing::AnyOf("INCONCLUSIVE", "EQUIVALENT")) << job.detail();

  const auto report = nlohmann::json::parse(Report(name).at("report.json"));
  double most = 0;
  for (const auto& round : report.at("rounds")) {
    const auto& cores = round.at("foreign_cpu_cores");
    if (round.at("round") > 3 && cores.is_number()) most = std::max(most, cores.get<double>());
  }
  EXPECT_GT(most, 0.25);
  EXPECT_THAT(report.at("notes").dump(), ::testing::HasSubstr("Other processes kept up to"));
}

TEST_F(JobProcessTest, AServerGivesBackTheClockThatAKilledOneLeftLocked) {
  std::filesystem::create_directory(folder_.path() + "/data");
  const std::string record = folder_.path() + "/data/clock_lock.GPU-00000000-0000-0000-0000-000000000000";
  const std::string told = folder_.path() + "/told";
  std::ofstream(record) << "SM clock locked";
  auto server =
      ServerProcess::Start({.program = kProgram,
                            .folder = folder_.path(),
                            .environment = {{"KEVAL_NVML_LIBRARY", KEVAL_FAKE_NVML}, {"KEVAL_FAKE_NVML_STATE", told}}});
  ASSERT_TRUE(server.ok()) << server.status();
  std::string line;
  std::ifstream file(told);
  std::getline(file, line);
  EXPECT_EQ(line, "unlock GPU-00000000-0000-0000-0000-000000000000 0");
  EXPECT_FALSE(std::filesystem::exists(record));
}

// Its stdin ends at once, as a killed server's pipe does.
TEST_F(JobProcessTest, KevaldIsItsClocksGuard) {
  const std::string uuid = "GPU-00000000-0000-0000-0000-000000000000";
  const std::string record = folder_.path() + "/clock_lock." + uuid;
  std::ofstream(record) << "SM clock locked\nowner killed\n";
  const auto guard = [&](const std::string& owner) {
    const std::string command = "KEVAL_NVML_LIBRARY=" KEVAL_FAKE_NVML " KEVAL_FAKE_NVML_STATE=" + folder_.path() +
                                "/told " + kProgram + " --guard_clock " + folder_.path() + " " + uuid + " " + owner +
                                " </dev/null >" + folder_.path() + "/said";
    EXPECT_EQ(std::system(command.c_str()), 0);  // NOLINT(cert-env33-c)
    std::string said;
    std::ifstream(folder_.path() + "/said") >> said;
    EXPECT_EQ(said, "w");  // It watches.
  };
  guard("another");
  EXPECT_TRUE(std::filesystem::exists(record));
  guard("killed");
  EXPECT_FALSE(std::filesystem::exists(record));
  std::string line;
  std::ifstream file(folder_.path() + "/told");
  std::getline(file, line);
  EXPECT_EQ(line, "unlock " + uuid + " 0");
  EXPECT_FALSE(std::getline(file, line));
}

TEST_F(JobProcessTest, ADrainEndsWatchesAndLeavesTheJobToBeResumed) {
  std::vector<v1::JobEvent> events;
  std::string name;
  {
    ServerProcess server = StartServer();
    name = Create(SmallSpec(200), "").name();
    bool told = false;
    const grpc::Status status = Watch(name, &events, [&](const v1::JobEvent& event) {
      if (event.has_round_done() && !std::exchange(told, true)) server.Signal(SIGTERM);
      return false;
    });
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
    EXPECT_EQ(server.Wait(absl::Seconds(60)), 0);
  }
  ServerProcess server = StartServer();
  Watch(name, &events, [](const v1::JobEvent& event) { return event.has_round_done(); });
  EXPECT_TRUE(events.back().has_round_done());
  grpc::ClientContext context;
  v1::GetJobRequest request;
  request.set_name(name);
  v1::BenchmarkJob job;
  ASSERT_TRUE(stub_->Get(&context, request, &job).ok());
  EXPECT_EQ(job.state(), v1::BenchmarkJob::RUNNING);
  EXPECT_EQ(job.restarts(), 1);
}

}  // namespace
}  // namespace keval
