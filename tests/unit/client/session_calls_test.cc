// What the connection makes of calls about gradient sessions: ids that stay the same over attempts, and what is let go
// of.
#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "keval/client.h"
#include "keval/status.h"
#include "tests/unit/client/connection_fixture.h"

namespace keval {
namespace {

using ::testing::_;
using ::testing::DoAll;
using ::testing::ElementsAre;
using ::testing::Return;
using ::testing::SaveArg;
using ::testing::SizeIs;

class SessionCallsTest : public ConnectionTest {
 protected:
  // A micro-batch of one token.
  GradientParams Batch() const {
    GradientParams params;
    params.session = "sessions/a";
    params.hidden = TensorView{DType::kFloat32, {1, 2}, {}, values_.data()};
    params.targets = TensorView{DType::kInt64, {1}, {}, &target_};
    params.grad_logp = TensorView{DType::kFloat32, {1}, {}, values_.data()};
    return params;
  }

  const std::vector<float> values_ = std::vector<float>(1024);
  const std::int64_t target_ = 0;
};

TEST_F(SessionCallsTest, AMicroBatchKeepsItsIdOverAttempts) {
  ExpectInfo(1 << 20);
  v1::GradientRequest first;
  v1::GradientRequest second;
  v1::GradientResponse answer;
  answer.mutable_session_batch()->set_sequence(7);
  EXPECT_CALL(*stub_, Gradient(_, _))
      .WillOnce(DoAll(SaveArg<1>(&first), Return(Unavailable())))
      .WillOnce(DoAll(SaveArg<1>(&second), Return(answer)));
  // The mock's answer has no tensors, which isn't what is looked at here.
  static_cast<void>(connection_->Gradient(Batch(), {}));
  EXPECT_EQ(first.session_batch().session(), "sessions/a");
  EXPECT_THAT(first.session_batch().batch_id(), SizeIs(16));
  EXPECT_EQ(second.session_batch().batch_id(), first.session_batch().batch_id());
  EXPECT_FALSE(first.inputs().has_weight());
}

TEST_F(SessionCallsTest, CallsHaveIdsOfTheirOwnUnlessTheCallerHasOne) {
  ExpectInfo(1 << 20);
  std::vector<std::string> ids;
  EXPECT_CALL(*stub_, Gradient(_, _))
      .Times(3)
      .WillRepeatedly([&](const Attempt&, const v1::GradientRequest& request) -> absl::StatusOr<v1::GradientResponse> {
        ids.push_back(request.session_batch().batch_id());
        return absl::NotFoundError("session");
      });
  EXPECT_FALSE(connection_->Gradient(Batch(), {}).ok());
  EXPECT_FALSE(connection_->Gradient(Batch(), {}).ok());
  GradientParams named = Batch();
  named.batch_id = "0123456789abcdef";
  EXPECT_FALSE(connection_->Gradient(named, {}).ok());
  EXPECT_NE(ids[0], ids[1]);
  EXPECT_EQ(ids[2], "0123456789abcdef");
}

// Rather than become a forward call, which isn't the session's.
TEST_F(SessionCallsTest, AMicroBatchWithoutAnUpstreamIsNotSent) {
  GradientParams params = Batch();
  params.grad_logp = {};
  const absl::Status status = connection_->Gradient(params, {}).status();
  ASSERT_TRUE(GetFieldViolation(status).has_value()) << status;
  EXPECT_EQ(GetFieldViolation(status)->field, "grad_logp");
}

TEST_F(SessionCallsTest, AnOrdinaryGradientIsNoMicroBatch) {
  ExpectInfo(1 << 20);
  GradientParams params = Batch();
  params.session.clear();
  EXPECT_EQ(GetFieldViolation(connection_->Gradient(params, {}).status())->field, "weight");
  params.weight = TensorView{DType::kFloat32, {3, 2}, {}, values_.data()};
  v1::GradientRequest request;
  EXPECT_CALL(*stub_, Gradient(_, _)).WillOnce(DoAll(SaveArg<1>(&request), Return(absl::InternalError(""))));
  EXPECT_FALSE(connection_->Gradient(params, {}).ok());
  EXPECT_FALSE(request.has_session_batch());
}

TEST_F(SessionCallsTest, ALargeWeightIsStoredForTheCallAlone) {
  ExpectInfo(1000);
  v1::TensorInfo info;
  info.set_handle("tensors/w");
  v1::PutHeader header;
  EXPECT_CALL(*stub_, Put(_, _, _)).WillOnce(DoAll(SaveArg<1>(&header), Return(info)));
  v1::CreateSessionRequest request;
  EXPECT_CALL(*stub_, CreateSession(_, _)).WillOnce(DoAll(SaveArg<1>(&request), Return(Unavailable())));  // Once.
  v1::DeleteTensorRequest deleted;
  EXPECT_CALL(*stub_, Delete(_, _)).WillOnce(DoAll(SaveArg<1>(&deleted), Return(v1::DeleteTensorResponse())));
  SessionParams params;
  params.weight = TensorView{DType::kFloat32, {256, 4}, {}, values_.data()};
  params.bias = TensorView{DType::kFloat32, {4}, {}, values_.data()};
  EXPECT_EQ(connection_->CreateSession(params, {}).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(header.spec().shape(), ElementsAre(256, 4));
  EXPECT_EQ(request.weight().handle(), "tensors/w");
  EXPECT_THAT(request.bias().data(), SizeIs(16));
  EXPECT_EQ(deleted.handle(), "tensors/w");
}

TEST_F(SessionCallsTest, AFetchKeepsItsIdAndLetsGoOfWhatItBrought) {
  v1::FetchSessionResponse fetched;
  fetched.mutable_grad_weight()->set_handle("tensors/w");
  fetched.mutable_session()->set_batches(3);
  v1::FetchSessionRequest first;
  v1::FetchSessionRequest second;
  EXPECT_CALL(*stub_, FetchSession(_, _))
      .WillOnce(DoAll(SaveArg<1>(&first), Return(Unavailable())))
      .WillOnce(DoAll(SaveArg<1>(&second), Return(fetched)));
  EXPECT_CALL(*stub_, Get(_, _, _))
      .WillOnce([&](const Attempt&, const v1::GetTensorRequest& request, const Stub::AllocateTensor& allocate) {
        EXPECT_EQ(request.handle(), "tensors/w");
        v1::TensorInfo info;
        info.mutable_spec()->set_dtype(v1::DATA_TYPE_FLOAT32);
        info.mutable_spec()->add_shape(1);
        const auto memory = allocate(info);
        if (!memory.ok()) return memory.status();
        const float value = 5;
        std::memcpy(memory->data(), &value, sizeof(value));
        return absl::OkStatus();
      });
  EXPECT_CALL(*stub_, Delete(_, _)).WillOnce(Return(v1::DeleteTensorResponse()));
  const auto sums = connection_->FetchSession("sessions/a", /*reset=*/true, "", {});
  ASSERT_TRUE(sums.ok()) << sums.status();
  EXPECT_EQ(sums->grad_weight.At(0), 5);
  EXPECT_FALSE(sums->grad_bias.has_value());
  EXPECT_EQ(sums->session.batches(), 3);
  EXPECT_TRUE(first.reset());
  EXPECT_THAT(first.request_id(), SizeIs(16));
  EXPECT_EQ(second.request_id(), first.request_id());
}

// Its sums are still on the server, and the caller's id brings them.
TEST_F(SessionCallsTest, AFetchThatFailsOnTheWayBackLeavesItsTensors) {
  v1::FetchSessionResponse fetched;
  fetched.mutable_grad_weight()->set_handle("tensors/w");
  v1::FetchSessionRequest request;
  EXPECT_CALL(*stub_, FetchSession(_, _)).WillOnce(DoAll(SaveArg<1>(&request), Return(fetched)));
  EXPECT_CALL(*stub_, Get(_, _, _)).WillOnce(Return(absl::DataLossError("digest")));
  EXPECT_FALSE(connection_->FetchSession("sessions/a", /*reset=*/true, "0123456789abcdef", {}).ok());
  EXPECT_EQ(request.request_id(), "0123456789abcdef");
}

TEST_F(SessionCallsTest, ZeroIsRepeatedAndDeleteIsNot) {
  v1::ZeroSessionRequest first;
  v1::ZeroSessionRequest second;
  EXPECT_CALL(*stub_, ZeroSession(_, _))
      .WillOnce(DoAll(SaveArg<1>(&first), Return(Unavailable())))
      .WillOnce(DoAll(SaveArg<1>(&second), Return(v1::GradientSession())));
  EXPECT_TRUE(connection_->ZeroSession("sessions/a", {}).ok());
  EXPECT_THAT(first.request_id(), SizeIs(16));
  EXPECT_EQ(first.request_id(), second.request_id());
  EXPECT_CALL(*stub_, DeleteSession(_, _)).WillOnce(Return(Unavailable()));
  EXPECT_FALSE(connection_->DeleteSession("sessions/a", {}).ok());
}

}  // namespace
}  // namespace keval
