// A Stub whose answers a test decides.
#ifndef KEVAL_TESTS_UNIT_CLIENT_MOCK_STUB_H_
#define KEVAL_TESTS_UNIT_CLIENT_MOCK_STUB_H_

#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "client/stub.h"

namespace keval {

class MockStub : public Stub {
 public:
  MOCK_METHOD(absl::StatusOr<v1::ServerInfo>, GetServerInfo, (const Attempt&), (override));
  MOCK_METHOD(absl::StatusOr<bool>, IsServing, (const Attempt&, const std::string&), (override));
  MOCK_METHOD(absl::StatusOr<v1::ForwardResponse>, Forward, (const Attempt&, const v1::ForwardRequest&), (override));
  MOCK_METHOD(absl::StatusOr<v1::GradientResponse>, Gradient, (const Attempt&, const v1::GradientRequest&), (override));
  MOCK_METHOD(absl::StatusOr<v1::StreamGradientDone>, StreamGradient,
              (const Attempt&, const v1::GradientRequest&, const std::vector<ConstBytes>&, const Allocate&),
              (override));
  MOCK_METHOD(absl::StatusOr<v1::PlanResponse>, Plan, (const Attempt&, const v1::PlanRequest&), (override));
  MOCK_METHOD(absl::Status, CheckContract,
              (const Attempt&, const v1::CheckContractRequest&, const std::function<void(const v1::ContractRow&)>&),
              (override));
  MOCK_METHOD(absl::StatusOr<v1::TensorInfo>, Put, (const Attempt&, const v1::PutHeader&, ConstBytes), (override));
  MOCK_METHOD(absl::Status, Get, (const Attempt&, const v1::GetTensorRequest&, const AllocateTensor&), (override));
  MOCK_METHOD(absl::StatusOr<v1::TensorInfo>, Reuse, (const Attempt&, const v1::ReuseTensorRequest&), (override));
  MOCK_METHOD(absl::StatusOr<v1::TensorInfo>, Stat, (const Attempt&, const v1::StatTensorRequest&), (override));
  MOCK_METHOD(absl::StatusOr<v1::ListTensorsResponse>, ListTensors, (const Attempt&, const v1::ListTensorsRequest&),
              (override));
  MOCK_METHOD(absl::StatusOr<v1::TensorInfo>, Touch, (const Attempt&, const v1::TouchTensorRequest&), (override));
  MOCK_METHOD(absl::StatusOr<v1::DeleteTensorResponse>, Delete, (const Attempt&, const v1::DeleteTensorRequest&),
              (override));
  MOCK_METHOD(absl::StatusOr<v1::GradientSession>, CreateSession, (const Attempt&, const v1::CreateSessionRequest&),
              (override));
  MOCK_METHOD(absl::StatusOr<v1::GradientSession>, GetSession, (const Attempt&, const v1::GetSessionRequest&),
              (override));
  MOCK_METHOD(absl::StatusOr<v1::ListSessionsResponse>, ListSessions, (const Attempt&, const v1::ListSessionsRequest&),
              (override));
  MOCK_METHOD(absl::StatusOr<v1::GradientSession>, TouchSession, (const Attempt&, const v1::TouchSessionRequest&),
              (override));
  MOCK_METHOD(absl::StatusOr<v1::DeleteSessionResponse>, DeleteSession,
              (const Attempt&, const v1::DeleteSessionRequest&), (override));
  MOCK_METHOD(absl::StatusOr<v1::GradientSession>, ZeroSession, (const Attempt&, const v1::ZeroSessionRequest&),
              (override));
  MOCK_METHOD(absl::StatusOr<v1::FetchSessionResponse>, FetchSession, (const Attempt&, const v1::FetchSessionRequest&),
              (override));
  MOCK_METHOD(absl::StatusOr<v1::BenchmarkJob>, Create, (const Attempt&, const v1::CreateJobRequest&), (override));
  MOCK_METHOD(absl::StatusOr<v1::BenchmarkJob>, GetJob, (const Attempt&, const v1::GetJobRequest&), (override));
  MOCK_METHOD(absl::StatusOr<v1::ListJobsResponse>, ListJobs, (const Attempt&, const v1::ListJobsRequest&), (override));
  MOCK_METHOD(absl::Status, Watch,
              (const Attempt&, const v1::WatchJobRequest&, const std::function<void(const v1::JobEvent&)>&),
              (override));
  MOCK_METHOD(absl::StatusOr<v1::BenchmarkJob>, Cancel, (const Attempt&, const v1::CancelJobRequest&), (override));
  MOCK_METHOD(absl::Status, GetReport,
              (const Attempt&, const v1::GetReportRequest&, const std::function<void(const v1::GetReportResponse&)>&),
              (override));
};

}  // namespace keval

#endif  // KEVAL_TESTS_UNIT_CLIENT_MOCK_STUB_H_
