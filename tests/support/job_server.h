// The benchmark service without transport and workers, as a test starts, kills and restarts it.
#ifndef KEVAL_TESTS_SUPPORT_JOB_SERVER_H_
#define KEVAL_TESTS_SUPPORT_JOB_SERVER_H_

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/benchmark_handler.h"
#include "server/device_lease.h"
#include "server/job_runner.h"
#include "server/job_store.h"
#include "tests/support/fake_round_collector.h"
#include "tests/support/job_fixtures.h"

namespace keval::testing {

// One "process": a store, a runner and a handler on `data_dir`, serving the first of `context`'s devices. Its end is a
// drain.
class JobServer {
 public:
  JobServer(const std::string& data_dir, std::shared_ptr<FakeWork> work,
            const server::SpecContext& context = TestContext(), server::ClockPolicy clocks = {}) {
    auto opened = server::JobStore::Open(data_dir);
    EXPECT_TRUE(opened.ok()) << opened.status();
    store_ = *std::move(opened);
    runner_ = std::make_unique<server::JobRunner>(
        store_.get(), [work](const v1::DeviceInfo&) { return std::make_unique<FakeRoundCollector>(work); },
        std::vector<server::BenchmarkDevice>{{context.devices[0], &lease_}}, v1::BuildInfo(), std::move(clocks));
    handler_ = std::make_unique<server::BenchmarkHandler>(store_.get(), runner_.get(), context);
  }

  JobServer& Start() {
    EXPECT_TRUE(runner_->Start().ok());
    return *this;
  }

  server::JobStore& store() { return *store_; }
  server::JobRunner& runner() { return *runner_; }
  server::BenchmarkHandler& handler() { return *handler_; }

  v1::BenchmarkJob Create(const v1::BenchmarkSpec& spec, const std::string& request_id = "",
                          const std::string& principal = "ann") {
    v1::CreateJobRequest request;
    *request.mutable_spec() = spec;
    request.set_request_id(request_id);
    auto job = handler_->Create(principal, request);
    EXPECT_TRUE(job.ok()) << job.status();
    return job.ok() ? *job : v1::BenchmarkJob();
  }

  v1::BenchmarkJob Get(const std::string& name) {
    auto stored = store_->Get(name);
    EXPECT_TRUE(stored.ok()) << stored.status();
    return stored.ok() ? stored->job : v1::BenchmarkJob();
  }

  // Waits until `done` holds for the job, or fails the test after 60 s.
  template <typename Predicate>
  v1::BenchmarkJob WaitUntil(const std::string& name, Predicate done) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (std::chrono::steady_clock::now() < deadline) {
      v1::BenchmarkJob job = Get(name);
      if (done(job)) return job;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    ADD_FAILURE() << name << " didn't get there: " << Get(name).ShortDebugString();
    return {};
  }
  v1::BenchmarkJob WaitForEnd(const std::string& name) {
    return WaitUntil(name, [](const v1::BenchmarkJob& job) {
      return job.state() == v1::BenchmarkJob::DONE || job.state() == v1::BenchmarkJob::CANCELLED;
    });
  }

  // File name to content.
  std::map<std::string, std::string> Report(const std::string& name, const std::string& principal = "ann") {
    v1::GetReportRequest request;
    request.set_name(name);
    std::map<std::string, std::string> files;
    std::string file;
    const absl::Status status = handler_->GetReport(principal, request, [&](const v1::GetReportResponse& piece) {
      if (!piece.file_name().empty()) file = piece.file_name();
      files[file] += piece.data();
      return true;
    });
    EXPECT_TRUE(status.ok()) << status;
    return files;
  }

 private:
  server::DeviceLease lease_;
  std::unique_ptr<server::JobStore> store_;
  std::unique_ptr<server::JobRunner> runner_;
  std::unique_ptr<server::BenchmarkHandler> handler_;
};

}  // namespace keval::testing

#endif  // KEVAL_TESTS_SUPPORT_JOB_SERVER_H_
