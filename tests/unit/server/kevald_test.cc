// The whole server in one process over a fake device: calls, options, deadlines, drain, health, jobs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "keval/v1/benchmark.grpc.pb.h"
#include "keval/v1/server_info.grpc.pb.h"
#include "keval/v1/status_details.pb.h"
#include "tests/unit/server/kevald_fixture.h"

namespace keval::server {
namespace {

using grpc::health::v1::HealthCheckResponse;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

TEST_F(KevaldTest, UnaryBytesAreLimitedByName) {
  Start();
  v1::GradientRequest request = Unary();
  const std::int64_t tokens = (3 << 20) / 4 / kHidden;
  SetSpec(request.mutable_inputs()->mutable_hidden(), v1::DATA_TYPE_FLOAT32, {tokens, kHidden});
  request.mutable_inputs()->mutable_hidden()->set_data(std::string(3 << 20, '\0'));
  for (auto* operand : {request.mutable_inputs()->mutable_targets(), request.mutable_inputs()->mutable_grad_logp()}) {
    SetSpec(operand, operand->spec().dtype(), {tokens});
    operand->set_data(std::string(static_cast<std::size_t>(4 * tokens), '\0'));
  }
  v1::ErrorDetail detail;
  const grpc::Status status = Gradient(request, nullptr, &detail);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(detail.field(), "inputs");
  EXPECT_THAT(detail.limit(), HasSubstr("2097152 bytes"));
}

TEST_F(KevaldTest, AMessageAboveTheLimitIsGrpcsOwnRefusalAndTheNextCallWorks) {
  Start();
  v1::GradientRequest request = Unary();
  request.mutable_inputs()->mutable_hidden()->set_data(std::string((16 << 20) + 1, '\0'));
  v1::ErrorDetail detail;
  EXPECT_EQ(Gradient(request, nullptr, &detail).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(detail.retry_delay_ms(), 0);
  EXPECT_TRUE(Gradient(Unary()).ok());
}

TEST_F(KevaldTest, WantAndOptionsAreChecked) {
  Start();
  v1::ErrorDetail detail;
  v1::GradientRequest request = Unary();
  request.add_want(v1::WANT_HIDDEN);
  v1::GradientResponse response;
  ASSERT_TRUE(Gradient(request, &response).ok());
  EXPECT_TRUE(response.has_grad_hidden());
  EXPECT_FALSE(response.has_grad_weight());
  EXPECT_FALSE(response.has_grad_bias());

  request = Unary();
  request.mutable_inputs()->clear_bias();
  request.add_want(v1::WANT_BIAS);
  EXPECT_EQ(Gradient(request, nullptr, &detail).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(detail.field(), "want");

  request = Unary();
  request.mutable_inputs()->clear_grad_logp();
  ASSERT_TRUE(Gradient(request, &response).ok());  // Forward only.
  EXPECT_FALSE(response.has_grad_hidden());

  request = Unary();
  request.mutable_options()->set_variant("no_such");
  EXPECT_EQ(Gradient(request, nullptr, &detail).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(detail.field(), "variant");

  request = Unary();
  request.mutable_options()->set_device("cuda:3");
  EXPECT_EQ(Gradient(request, nullptr, &detail).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(detail.field(), "device");
  EXPECT_EQ(detail.value(), "cuda:3");
  EXPECT_EQ(detail.limit(), "one of cpu");
  request.mutable_options()->set_device("tpu");
  EXPECT_EQ(Gradient(request, nullptr, &detail).error_code(), grpc::StatusCode::INVALID_ARGUMENT);

  request = Unary();
  request.mutable_options()->set_chunk_elems(-1);
  EXPECT_EQ(Gradient(request, nullptr, &detail).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(detail.field(), "chunk_elems");
}

TEST_F(KevaldTest, PlanTellsTrafficAndVariants) {
  Start();
  v1::PlanRequest request;
  request.set_num_tokens(4096);
  request.set_hidden_size(2048);
  request.set_vocab_size(32768);
  v1::PlanResponse response;
  grpc::ClientContext context;
  ASSERT_TRUE(linear_logp_->Plan(&context, request, &response).ok());
  EXPECT_EQ(response.chunks(), 8);
  EXPECT_EQ(response.saving_bytes(), std::int64_t{4} << 30);
  EXPECT_EQ(response.variants_size(), 2);
  EXPECT_EQ(response.estimated_device_bytes(), 12345);
  request.set_vocab_size(0);
  grpc::ClientContext refused;
  EXPECT_EQ(linear_logp_->Plan(&refused, request, &response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(DetailOf(refused).field(), "vocab_size");
}

TEST_F(KevaldTest, DeadlineAndCancelReachTheWork) {
  Start();
  std::atomic<int> begun = 0;
  std::atomic<int> stopped = 0;
  control_->compute = [&](const linear_logp::ContinueCheck& check) {
    ++begun;
    while (true) {
      if (absl::Status status = check(); !status.ok()) {
        ++stopped;
        return status;
      }
      std::this_thread::sleep_for(milliseconds(1));
    }
  };
  v1::GradientResponse response;
  grpc::ClientContext late;
  late.set_deadline(std::chrono::system_clock::now() + milliseconds(50));
  EXPECT_EQ(linear_logp_->Gradient(&late, Unary(), &response).error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);

  for (int i = 0; i < 1000 && stopped < 1; ++i) std::this_thread::sleep_for(milliseconds(5));
  ASSERT_EQ(stopped, 1);
  grpc::ClientContext cancelled;
  std::thread cancel([&] {
    for (int i = 0; i < 1000 && begun < 2; ++i) std::this_thread::sleep_for(milliseconds(5));
    cancelled.TryCancel();
  });
  EXPECT_EQ(linear_logp_->Gradient(&cancelled, Unary(), &response).error_code(), grpc::StatusCode::CANCELLED);
  cancel.join();
  for (int i = 0; i < 1000 && stopped < 2; ++i) std::this_thread::sleep_for(milliseconds(5));
  EXPECT_EQ(stopped, 2);
}

TEST_F(KevaldTest, DrainLetsRunningCallsFinishRefusesNewOnesAndEndsWatches) {
  Start();
  absl::Notification running;
  absl::Notification release;
  control_->compute = [&](const linear_logp::ContinueCheck&) {
    running.Notify();
    release.WaitForNotification();
    return absl::OkStatus();
  };
  const auto health = grpc::health::v1::Health::NewStub(Connect(*kevald_->addresses().health));
  grpc::health::v1::HealthCheckRequest ready;
  ready.set_service("ready");
  grpc::ClientContext watch_context;
  auto watch = health->Watch(&watch_context, ready);
  HealthCheckResponse seen;
  ASSERT_TRUE(watch->Read(&seen));
  EXPECT_EQ(seen.status(), HealthCheckResponse::SERVING);

  auto call = std::async(std::launch::async, [this] { return Gradient(Unary()); });
  running.WaitForNotification();
  std::thread drain([this] { kevald_->Drain(); });
  ASSERT_TRUE(watch->Read(&seen));
  EXPECT_EQ(seen.status(), HealthCheckResponse::NOT_SERVING);
  EXPECT_FALSE(watch->Read(&seen));
  EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);

  const grpc::Status refused = Gradient(Unary());
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(refused.error_message(), HasSubstr("draining"));
  const auto check = [&](const std::string& service) {
    grpc::ClientContext context;
    grpc::health::v1::HealthCheckRequest request;
    request.set_service(service);
    HealthCheckResponse response;
    EXPECT_TRUE(health->Check(&context, request, &response).ok()) << service;
    return response.status();
  };
  EXPECT_EQ(check("live"), HealthCheckResponse::SERVING);
  EXPECT_EQ(check("ready"), HealthCheckResponse::NOT_SERVING);
  v1::ServerInfo info;
  grpc::ClientContext info_context;
  EXPECT_TRUE(v1::ServerInfoService::NewStub(channel_)->GetServerInfo(&info_context, {}, &info).ok());
  EXPECT_TRUE(info.draining());

  release.Notify();
  EXPECT_TRUE(call.get().ok());
  drain.join();
}

TEST_F(KevaldTest, GraceEndsWhatDoesNotFinish) {
  ServerOptions options;
  options.drain_grace_seconds = 0;
  Start(options);
  absl::Notification running;
  control_->compute = [&](const linear_logp::ContinueCheck& check) {
    running.Notify();
    while (true) {
      if (absl::Status status = check(); !status.ok()) return status;
      std::this_thread::sleep_for(milliseconds(1));
    }
  };
  auto call = std::async(std::launch::async, [this] { return Gradient(Unary()); });
  running.WaitForNotification();
  const auto start = std::chrono::steady_clock::now();
  kevald_->Drain();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  EXPECT_EQ(call.get().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(KevaldTest, LostDeviceShowsInHealthAndInfoAndRefuses) {
  Start();
  control_->compute = [this](const linear_logp::ContinueCheck&) {
    control_->healthy = false;
    return absl::AbortedError("cudaErrorIllegalAddress at engine.cc");
  };
  const grpc::Status status = Gradient(Unary());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), ::testing::Not(HasSubstr("engine.cc")));
  for (int i = 0; i < 1000 && !kevald_->device_lost(); ++i) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_TRUE(kevald_->device_lost());
  EXPECT_EQ(Gradient(Unary()).error_code(), grpc::StatusCode::UNAVAILABLE);
  v1::ServerInfo info;
  grpc::ClientContext context;
  ASSERT_TRUE(v1::ServerInfoService::NewStub(channel_)->GetServerInfo(&context, {}, &info).ok());
  EXPECT_FALSE(info.devices(0).healthy());
}

TEST_F(KevaldTest, InfoHoldsLimitsDevicesAndPorts) {
  Start();
  v1::ServerInfo info;
  grpc::ClientContext context;
  const auto bulk = v1::ServerInfoService::NewStub(Connect(*kevald_->addresses().bulk));
  ASSERT_TRUE(bulk->GetServerInfo(&context, {}, &info).ok());
  EXPECT_EQ(info.limits().max_unary_bytes(), 2 << 20);
  EXPECT_EQ(info.limits().max_message_bytes(), 16 << 20);
  EXPECT_EQ(info.limits().max_stored_tensors_per_caller(), 10000);
  EXPECT_EQ(*kevald_->addresses().bulk, absl::StrCat("127.0.0.1:", info.bulk_port()));
  EXPECT_EQ(info.devices(0).name(), "cpu");
  EXPECT_EQ(info.build().version(), "");  // The platform's to fill in.
  EXPECT_EQ(info.variants_size(), 2);
}

TEST_F(KevaldTest, ContractRowsStreamAndADeadWorkerIsNamed) {
  Start();
  const auto check = [this](const v1::CheckContractRequest& request, std::vector<v1::ContractRow>* rows,
                            v1::ErrorDetail* detail) {
    grpc::ClientContext context;
    auto reader = linear_logp_->CheckContract(&context, request);
    v1::ContractRow row;
    while (reader->Read(&row)) rows->push_back(row);
    grpc::Status status = reader->Finish();
    *detail = DetailOf(context);
    return status;
  };
  v1::CheckContractRequest request;
  std::vector<v1::ContractRow> rows;
  v1::ErrorDetail detail;
  ASSERT_TRUE(check(request, &rows, &detail).ok());
  ASSERT_EQ(rows.size(), 2);
  EXPECT_EQ(rows[0].id(), "C1");
  EXPECT_EQ(rows[0].status(), v1::ContractRow::ROW_STATUS_PASS);
  EXPECT_EQ(rows[1].status(), v1::ContractRow::ROW_STATUS_NOT_APPLICABLE);

  request.set_seed(13);
  const grpc::Status dead = check(request, &rows, &detail);
  EXPECT_EQ(dead.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(dead.error_message(), HasSubstr("candidate"));

  request.set_seed(14);
  const grpc::Status talkative = check(request, &rows, &detail);
  EXPECT_EQ(talkative.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(talkative.error_message(), HasSubstr("CRASHED: wrote \\u001B[2Jxxx"));
  EXPECT_LT(talkative.error_message().size(), 1200);

  request.set_candidate("no_such");
  EXPECT_EQ(check(request, &rows, &detail).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(detail.field(), "candidate");
}

v1::CreateJobRequest SmallJob() {
  v1::CreateJobRequest create;
  v1::Shape* const shape = create.mutable_spec()->add_primaries();
  shape->set_num_tokens(8);
  shape->set_hidden_size(8);
  shape->set_vocab_size(16);
  return create;
}

TEST_F(KevaldTest, JobsBelongToWhoeverMadeThem) {
  Start();
  const auto jobs = v1::BenchmarkService::NewStub(channel_);
  v1::CreateJobRequest create = SmallJob();
  v1::BenchmarkJob job;
  grpc::ClientContext create_context;
  create_context.AddMetadata("x-principal", "ann");
  const grpc::Status created = jobs->Create(&create_context, create, &job);
  ASSERT_TRUE(created.ok()) << created.error_message();
  for (const auto& [principal, code] : std::vector<std::pair<std::string, grpc::StatusCode>>{
           {"ann", grpc::StatusCode::OK}, {"bob", grpc::StatusCode::NOT_FOUND}}) {
    grpc::ClientContext context;
    context.AddMetadata("x-principal", principal);
    v1::GetJobRequest get;
    get.set_name(job.name());
    v1::BenchmarkJob seen;
    EXPECT_EQ(jobs->Get(&context, get, &seen).error_code(), code) << principal;
  }
  create.mutable_spec()->mutable_primaries(0)->set_vocab_size(0);
  grpc::ClientContext refused;
  const grpc::Status status = jobs->Create(&refused, create, &job);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(DetailOf(refused).field(), "primaries[0].vocab_size");
  v1::StatusDetails details;  // As a generic client sees it.
  ASSERT_TRUE(details.ParseFromString(status.error_details()));
  ASSERT_EQ(details.details_size(), 1);
  v1::BadRequestDetail bad_request;
  ASSERT_TRUE(bad_request.ParseFromString(details.details(0).value()));
  EXPECT_EQ(bad_request.field_violations(0).field(), "primaries[0].vocab_size");
}

TEST_F(KevaldTest, JobIsWatchedToItsEnd) {
  Start();
  const auto jobs = v1::BenchmarkService::NewStub(channel_);
  v1::CreateJobRequest create = SmallJob();
  v1::BenchmarkJob job;
  grpc::ClientContext create_context;
  ASSERT_TRUE(jobs->Create(&create_context, create, &job).ok());
  // The fake workers all crash, so the job ends FAILED: every event is replayed, then the stream ends.
  grpc::ClientContext context;
  v1::WatchJobRequest watch;
  watch.set_name(job.name());
  const auto reader = jobs->Watch(&context, watch);
  v1::JobEvent event;
  std::int64_t last = 0;
  while (reader->Read(&event)) {
    EXPECT_EQ(event.sequence(), last + 1);
    last = event.sequence();
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(event.job().verdict(), "FAILED");
  EXPECT_EQ(event.job().failure_cause(), "candidate");
}

TEST_F(KevaldTest, OfSeveralAddressesTheOneThatFailsIsNamed) {
  Start();
  const std::string freed = kevald_->addresses().control.front();
  kevald_.reset();
  ServerOptions options;
  options.data_dir = folder_.path();
  // Twice the same: each can be bound by itself, so only gRPC's attempt finds out.
  for (const std::string& address : {std::string("127.0.0.1:0"), freed, freed}) {
    options.listen.push_back(*ParseListenAddress("--listen", address));
  }
  const absl::Status status = Kevald::Start(options, FakePlatform(control_), &principals_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("--listen: cannot listen on ", freed)));
}

TEST_F(KevaldTest, UnknownDeviceInOptionsIsRefused) {
  ServerOptions options;
  options.listen = {*ParseListenAddress("--listen", "127.0.0.1:0")};
  options.gradient_devices = {"cuda:0"};
  options.data_dir = folder_.path();
  const absl::Status status = Kevald::Start(options, FakePlatform(control_), &principals_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--gradient_devices"));
}

}  // namespace
}  // namespace keval::server
