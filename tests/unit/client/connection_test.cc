#include "client/connection_impl.h"

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/field_error.h"
#include "base/sha256.h"
#include "client/gradient_request.h"
#include "keval/client.h"
#include "tests/unit/client/connection_fixture.h"
#include "tests/unit/client/mock_stub.h"

namespace keval {
namespace {

using ::testing::_;
using ::testing::DoAll;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Invoke;
using ::testing::NiceMock;
using ::testing::Return;
using ::testing::SaveArg;

TEST_F(ConnectionTest, RepeatsWhatCanBeRepeatedAfterUnavailable) {
  EXPECT_CALL(*stub_, Stat(_, _)).WillOnce(Return(Unavailable())).WillOnce(Return(v1::TensorInfo()));
  EXPECT_TRUE(connection_->StatTensor("tensors/a", {}).ok());
}

TEST_F(ConnectionTest, HealthIsAskedAgainAfterUnavailableAndNotAfterAnAnswer) {
  EXPECT_CALL(*stub_, IsServing(_, "ready")).WillOnce(Return(Unavailable())).WillOnce(Return(false));
  const auto serving = connection_->IsServing("ready", {});
  ASSERT_TRUE(serving.ok()) << serving.status();
  EXPECT_FALSE(*serving);
  EXPECT_CALL(*stub_, IsServing(_, "cuda:9")).WillOnce(Return(absl::NotFoundError("no such")));
  EXPECT_EQ(connection_->IsServing("cuda:9", {}).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ConnectionTest, GivesUpAfterMaxAttempts) {
  EXPECT_CALL(*stub_, GetServerInfo(_)).Times(4).WillRepeatedly(Return(Unavailable()));
  EXPECT_EQ(connection_->GetServerInfo({}).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(ConnectionTest, NeverRepeatsPutDeleteOrContractAfterUnavailable) {
  EXPECT_CALL(*stub_, Put(_, _, _)).WillOnce(Return(Unavailable()));
  EXPECT_CALL(*stub_, Delete(_, _)).WillOnce(Return(Unavailable()));
  EXPECT_CALL(*stub_, CheckContract(_, _, _)).WillOnce(Return(Unavailable()));
  const float value = 1;
  EXPECT_FALSE(connection_->PutTensor({DType::kFloat32, {1}, {}, &value}, absl::ZeroDuration(), {}).ok());
  EXPECT_FALSE(connection_->DeleteTensor("tensors/a", {}).ok());
  EXPECT_FALSE(connection_->CheckContract({}, [](const v1::ContractRow&) {}, {}).ok());
}

TEST_F(ConnectionTest, RepeatsPutWhereTheServerSaysWhen) {
  EXPECT_CALL(*stub_, Put(_, _, _))
      .WillOnce(Return(WithRetryDelayMs(absl::ResourceExhaustedError("full"), 20)))
      .WillOnce(Return(v1::TensorInfo()));
  const float value = 1;
  const absl::Time start = absl::Now();
  EXPECT_TRUE(connection_->PutTensor({DType::kFloat32, {1}, {}, &value}, absl::ZeroDuration(), {}).ok());
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(20));
}

TEST_F(ConnectionTest, WhatTheServerHasIsNotSentAgain) {
  const float value = 1;
  const TensorView tensor{DType::kFloat32, {1}, {}, &value};
  v1::TensorInfo known;
  known.set_handle("tensors/known");
  v1::ReuseTensorRequest asked;
  EXPECT_CALL(*stub_, Reuse(_, _))
      .WillOnce(DoAll(SaveArg<1>(&asked), Return(known)))
      .WillOnce(Return(absl::NotFoundError("sha256: no such tensor")))
      .WillOnce(Return(absl::UnimplementedError("")))
      .WillOnce(Return(absl::InvalidArgumentError("lease_ms")));
  v1::PutHeader header;
  EXPECT_CALL(*stub_, Put(_, _, _)).Times(2).WillRepeatedly(DoAll(SaveArg<1>(&header), Return(v1::TensorInfo())));
  const auto info = connection_->PutTensorIfNew(tensor, absl::Seconds(5), {});
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->handle(), "tensors/known");
  EXPECT_EQ(asked.sha256(), Sha256Bytes(absl::string_view(reinterpret_cast<const char*>(&value), sizeof(value))));
  EXPECT_EQ(asked.lease_ms(), 5000);
  EXPECT_TRUE(connection_->PutTensorIfNew(tensor, absl::Seconds(5), {}).ok());
  EXPECT_EQ(header.digest(), v1::PAYLOAD_DIGEST_SHA256);  // So that it is found the next time.
  EXPECT_TRUE(connection_->PutTensorIfNew(tensor, absl::Seconds(5), {}).ok());
  EXPECT_EQ(connection_->PutTensorIfNew(tensor, absl::Seconds(5), {}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(ConnectionTest, RepeatsNoRefusal) {
  EXPECT_CALL(*stub_, Stat(_, _))
      .WillOnce(Return(absl::NotFoundError("no")))
      .WillOnce(Return(absl::ResourceExhaustedError("never fits")));
  EXPECT_EQ(connection_->StatTensor("a", {}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(connection_->StatTensor("a", {}).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(ConnectionTest, DoesNotWaitBeyondTheDeadline) {
  EXPECT_CALL(*stub_, Stat(_, _)).WillOnce(Return(WithRetryDelayMs(Unavailable(), 60'000)));
  CallOptions options;
  options.timeout = absl::Seconds(5);
  const absl::Time start = absl::Now();
  EXPECT_EQ(connection_->StatTensor("a", options).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_LT(absl::Now() - start, absl::Seconds(2));
}

TEST_F(ConnectionTest, CancellingEndsTheWaitBetweenAttempts) {
  EXPECT_CALL(*stub_, Stat(_, _)).WillOnce(Return(WithRetryDelayMs(Unavailable(), 20'000)));
  CallOptions options;
  options.cancel = std::make_shared<CancelSource>();
  std::thread canceller([&] { options.cancel->Cancel(); });
  EXPECT_EQ(connection_->StatTensor("a", options).status().code(), absl::StatusCode::kCancelled);
  canceller.join();
}

TEST_F(ConnectionTest, ControlCallsHaveADeadlineAndTensorCallsNone) {
  EXPECT_CALL(*stub_, Stat(_, _)).WillOnce(Invoke([](const Attempt& attempt, const v1::StatTensorRequest&) {
    EXPECT_LT(attempt.deadline, absl::Now() + absl::Seconds(31));
    return v1::TensorInfo();
  }));
  EXPECT_CALL(*stub_, Put(_, _, _)).WillOnce(Invoke([](const Attempt& attempt, const v1::PutHeader&, ConstBytes) {
    EXPECT_EQ(attempt.deadline, absl::InfiniteFuture());
    return v1::TensorInfo();
  }));
  EXPECT_TRUE(connection_->StatTensor("a", {}).ok());
  EXPECT_TRUE(connection_->PutTensor({DType::kFloat32, {0}, {}, nullptr}, absl::ZeroDuration(), {}).ok());
}

TEST_F(ConnectionTest, CreateIsRepeatedUnderOneRequestId) {
  std::vector<std::string> ids;
  const auto answer = [&](const Attempt&, const v1::CreateJobRequest& request) -> absl::StatusOr<v1::BenchmarkJob> {
    ids.push_back(request.request_id());
    if (ids.size() == 1) return Unavailable();
    return v1::BenchmarkJob();
  };
  EXPECT_CALL(*stub_, Create(_, _)).Times(2).WillRepeatedly(Invoke(answer));
  EXPECT_TRUE(connection_->CreateJob({}, {}).ok());
  EXPECT_EQ(ids[0].size(), 32U);
  EXPECT_EQ(ids[0], ids[1]);
}

v1::JobEvent Event(std::int64_t sequence) {
  v1::JobEvent event;
  event.set_sequence(sequence);
  return event;
}

TEST_F(ConnectionTest, WatchGoesOnAfterTheLastEventSeen) {
  std::vector<std::int64_t> asked;
  const auto answer = [&](const Attempt&, const v1::WatchJobRequest& request,
                          const std::function<void(const v1::JobEvent&)>& event) {
    asked.push_back(request.after_sequence());
    if (asked.size() == 1) {
      event(Event(1));
      event(Event(2));
      return Unavailable();
    }
    if (asked.size() == 2) return Unavailable();
    event(Event(2));  // A replay that begins too early.
    event(Event(3));
    return absl::OkStatus();
  };
  EXPECT_CALL(*stub_, Watch(_, _, _)).Times(3).WillRepeatedly(Invoke(answer));
  std::vector<std::int64_t> seen;
  WatchParams params;
  params.name = "jobs/a";
  EXPECT_TRUE(connection_->WatchJob(params, [&](const v1::JobEvent& e) { seen.push_back(e.sequence()); }, {}).ok());
  EXPECT_THAT(asked, ElementsAre(0, 2, 2));
  EXPECT_THAT(seen, ElementsAre(1, 2, 3));
}

TEST_F(ConnectionTest, ProgressPassesThroughAndMovesNoSequence) {
  std::vector<std::int64_t> asked;
  const auto answer = [&](const Attempt&, const v1::WatchJobRequest& request,
                          const std::function<void(const v1::JobEvent&)>& event) {
    EXPECT_TRUE(request.progress());
    asked.push_back(request.after_sequence());
    v1::JobEvent progress;
    progress.mutable_progress()->set_phase("round");
    event(Event(static_cast<std::int64_t>(asked.size())));
    event(progress);
    return asked.size() == 1 ? Unavailable() : absl::OkStatus();
  };
  EXPECT_CALL(*stub_, Watch(_, _, _)).Times(2).WillRepeatedly(Invoke(answer));
  std::vector<std::int64_t> seen;
  WatchParams params;
  params.name = "jobs/a";
  params.progress = true;
  EXPECT_TRUE(connection_->WatchJob(params, [&](const v1::JobEvent& e) { seen.push_back(e.sequence()); }, {}).ok());
  EXPECT_THAT(asked, ElementsAre(0, 1));
  EXPECT_THAT(seen, ElementsAre(1, 0, 2, 0));
}

TEST_F(ConnectionTest, WatchGivesUpOnAServerThatStaysAway) {
  EXPECT_CALL(*stub_, Watch(_, _, _)).WillRepeatedly(Return(Unavailable()));
  WatchParams params;
  params.reconnect_for = absl::Milliseconds(50);
  EXPECT_EQ(connection_->WatchJob(params, [](const v1::JobEvent&) {}, {}).code(), absl::StatusCode::kUnavailable);
}

GradientParams Params(const std::vector<float>& memory, std::int64_t num_tokens) {
  GradientParams params;
  params.hidden = TensorView{DType::kFloat32, {num_tokens, 2}, {}, memory.data()};
  params.weight = TensorView{DType::kFloat32, {3, 2}, {1, 3}, memory.data()};  // Transposed.
  params.targets = TensorView{DType::kInt32, {num_tokens}, {}, memory.data()};
  params.grad_logp = TensorView{DType::kFloat32, {num_tokens}, {0}, memory.data()};
  return params;
}

v1::Operand Answer(std::initializer_list<std::int64_t> shape, const std::string& data) {
  v1::Operand operand;
  operand.mutable_spec()->set_dtype(v1::DATA_TYPE_FLOAT32);
  operand.mutable_spec()->mutable_shape()->Add(shape.begin(), shape.end());
  if (!data.empty()) operand.set_data(data);
  return operand;
}

TEST_F(ConnectionTest, SmallGradientsAreUnaryWithContiguousBytes) {
  const std::vector<float> memory = {1, 2, 3, 4, 5, 6};
  ExpectInfo(1000);
  EXPECT_CALL(*stub_, Gradient(_, _)).WillOnce(Invoke([&](const Attempt&, const v1::GradientRequest& request) {
    std::vector<float> weight(6);
    std::memcpy(weight.data(), request.inputs().weight().data().data(), 24);
    EXPECT_THAT(weight, ElementsAre(1, 4, 2, 5, 3, 6));
    EXPECT_EQ(request.inputs().grad_logp().data(), std::string("\0\0\x80\x3f\0\0\x80\x3f", 8));
    v1::GradientResponse response;
    *response.mutable_logp() = Answer({2}, std::string(8, '\0'));
    *response.mutable_grad_hidden() = Answer({2, 2}, std::string(16, '\0'));
    return response;
  }));
  const auto result = connection_->Gradient(Params(memory, 2), {});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->logp.num_elements(), 2);
  EXPECT_TRUE(result->grad_hidden.has_value());
  EXPECT_FALSE(result->grad_weight.has_value());
}

TEST_F(ConnectionTest, LargeOnesAndHandlesAreStreamed) {
  const std::vector<float> memory = {1, 2, 3, 4, 5, 6};
  ExpectInfo(20);
  const auto answer = [&](const Attempt&, const v1::GradientRequest& header, const std::vector<ConstBytes>& payload,
                          const Stub::Allocate& allocate) -> absl::StatusOr<v1::StreamGradientDone> {
    EXPECT_TRUE(header.inputs().weight().data().empty());
    EXPECT_EQ(payload.size(), header.inputs().weight().handle().empty() ? 4U : 3U);
    EXPECT_EQ(payload[0].data(), reinterpret_cast<const std::byte*>(memory.data()));  // targets, where they lie.
    v1::GradientResponse response;
    *response.mutable_logp() = Answer({2}, "");
    const auto memory_of_answer = allocate(response);
    if (!memory_of_answer.ok()) return memory_of_answer.status();
    EXPECT_EQ(memory_of_answer->at(0).size(), 8U);
    return v1::StreamGradientDone();
  };
  EXPECT_CALL(*stub_, StreamGradient(_, _, _, _))
      .WillOnce(Return(Unavailable()))  // Repeated as a whole.
      .WillRepeatedly(Invoke(answer));
  EXPECT_TRUE(connection_->Gradient(Params(memory, 2), {}).ok());
  auto params = Params(memory, 1);
  params.weight = Operand::Handle("tensors/a");
  EXPECT_TRUE(connection_->Gradient(params, {}).ok());
}

// The server takes the request in one message, but its answer might not fit one.
TEST_F(ConnectionTest, GradientsThatMayBeTwiceTheirOperandsAreStreamed) {
  const std::vector<float> memory = {1, 2, 3, 4, 5, 6};
  auto params = Params(memory, 2);
  const std::int64_t payload = PrepareGradient(params)->payload_bytes;
  ExpectInfo(2 * payload - 1);
  EXPECT_CALL(*stub_, Gradient(_, _)).WillOnce(Return(absl::DataLossError("unary")));
  EXPECT_EQ(connection_->Gradient(params, {}).status().message(), "unary");
  params.options.set_grad_dtype(v1::GRAD_DTYPE_FLOAT32);
  EXPECT_CALL(*stub_, StreamGradient(_, _, _, _)).WillOnce(Return(absl::DataLossError("stream")));
  EXPECT_EQ(connection_->Gradient(params, {}).status().message(), "stream");
}

TEST_F(ConnectionTest, AnswersOfAWrongSizeAreNotBelieved) {
  const std::vector<float> memory = {1, 2, 3, 4, 5, 6};
  ExpectInfo(1000);
  v1::GradientResponse response;
  *response.mutable_logp() = Answer({2}, "abc");
  EXPECT_CALL(*stub_, Gradient(_, _)).WillOnce(Return(response));
  EXPECT_EQ(connection_->Gradient(Params(memory, 2), {}).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(ConnectionTest, RefusesOperandsThatAreLeftOut) {
  GradientParams params;
  EXPECT_EQ(GetFieldViolation(connection_->Gradient(params, {}).status())->field, "targets");
  const Client client(std::make_shared<ConnectionImpl>(ConnectionOptions(), std::make_unique<NiceMock<MockStub>>()));
  EXPECT_EQ(GetFieldViolation(client.Gradient(params).status())->field, "grad_logp");
}

v1::GetReportResponse Piece(const std::string& name, const std::string& data, const std::string& sha256) {
  v1::GetReportResponse piece;
  piece.set_file_name(name);
  piece.set_data(data);
  piece.set_sha256(sha256);
  return piece;
}

absl::StatusOr<std::vector<ReportFile>> Report(ConnectionImpl& connection, MockStub& stub,
                                               const std::vector<v1::GetReportResponse>& pieces) {
  EXPECT_CALL(stub, GetReport(_, _, _))
      .WillOnce(Invoke([pieces](const Attempt&, const v1::GetReportRequest&,
                                const std::function<void(const v1::GetReportResponse&)>& take) {
        for (const auto& piece : pieces) take(piece);
        return absl::OkStatus();
      }));
  return connection.GetReport("jobs/a", {}, {});
}

TEST_F(ConnectionTest, ReportsAreCheckedAgainstTheirDigests) {
  const auto good = Report(
      *connection_, *stub_,
      {Piece("report.json", "{", ""), Piece("", "}", Sha256Bytes("{}")), Piece("samples.csv", "", Sha256Bytes(""))});
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_EQ(good->at(0).contents, "{}");
  EXPECT_EQ(good->size(), 2U);
  for (const auto& bad :
       std::vector<std::vector<v1::GetReportResponse>>{{},
                                                       {Piece("report.json", "{}", "")},
                                                       {Piece("report.json", "{}", Sha256Bytes("{"))},
                                                       {Piece("../../etc/passwd", "{}", Sha256Bytes("{}"))},
                                                       {Piece("", "{}", Sha256Bytes("{}"))}}) {
    EXPECT_EQ(Report(*connection_, *stub_, bad).status().code(), absl::StatusCode::kDataLoss);
  }
}

}  // namespace
}  // namespace keval
