// Gradient sessions in the engine: what is added is one call's float32 gradients, to the bit, and a call that ends
// early adds nothing.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ops/zeros.h>

#include "core/linear_logp/chunk_plan.h"
#include "core/linear_logp/engine.h"
#include "core/linear_logp/host_tensor.h"
#include "tests/support/operator_testing.h"
#include "tests/unit/linear_logp/engine_request.h"

namespace keval::linear_logp {
namespace {

using test_support::OperandTypes;

std::string BytesOf(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), static_cast<std::size_t>(tensor.nbytes())};
}
at::Tensor AsTensor(const HostTensor& tensor) { return ToDevice(tensor, tensor.spec.shape, at::kCPU); }

struct Sums {
  at::Tensor weight;
  at::Tensor bias;  // Undefined without a bias.
};

class SessionTest : public test_support::EngineOperatorTest {
 protected:
  std::unique_ptr<SessionTensors> Open(const Request& head) {
    auto session = engine_->OpenSession(head.problem, head.inputs);
    EXPECT_TRUE(session.ok()) << session.status();
    return session.ok() ? *std::move(session) : nullptr;
  }

  // A micro-batch as a server's parser leaves it: weight and bias aren't there.
  static Inputs WithoutHead(const Request& request) {
    Inputs inputs = request.inputs;
    inputs.weight = {};
    inputs.bias.reset();
    return inputs;
  }

  static Sums Zeros(const Request& head) {
    const at::ScalarType type = TorchType(head.problem.LogpDtype());
    return {at::zeros({kWords, kWidth}, type), head.problem.has_bias ? at::zeros({kWords}, type) : at::Tensor()};
  }
  Sums Read(const SessionTensors& session, const Request& head) {
    Sums sums = Zeros(head);
    const absl::Status status =
        engine_->ReadSession(session, static_cast<std::byte*>(sums.weight.mutable_data_ptr()),
                             sums.bias.defined() ? static_cast<std::byte*>(sums.bias.mutable_data_ptr()) : nullptr);
    EXPECT_TRUE(status.ok()) << status;
    return sums;
  }
  static void ExpectSame(const Sums& got, const Sums& want, const std::string& what) {
    EXPECT_EQ(BytesOf(got.weight), BytesOf(want.weight)) << what;
    ASSERT_EQ(got.bias.defined(), want.bias.defined()) << what;
    if (got.bias.defined()) {
      EXPECT_EQ(BytesOf(got.bias), BytesOf(want.bias)) << what;
    }
  }

  absl::StatusOr<Outputs> AddInChunks(SessionTensors* session, const Request& request, const Options& options,
                                      Want want) {
    auto gradient = engine_->BeginInSession(*session, request.problem, options, want, WithoutHead(request));
    if (!gradient.ok()) return gradient.status();
    const ChunkPlan plan = *MakeChunkPlan(kTokens, kWidth, kWords, options.chunk_elems);
    const std::int64_t row_bytes = kWidth * DTypeSize(request.problem.dtype);
    for (std::int64_t chunk = 0; chunk < plan.chunks; ++chunk) {
      const auto outputs =
          engine_->AddChunk(gradient->get(), request.inputs.hidden.data + chunk * plan.chunk_tokens * row_bytes);
      if (!outputs.ok()) return outputs.status();
    }
    return engine_->FinishInSession(gradient->get(), session);
  }
};

// Whole or in chunks, by every variant and in every type: the float32 gradients of each micro-batch, added in order.
TEST_F(SessionTest, AddsTheBitsOfEachMicroBatchInOrder) {
  for (const at::ScalarType type : OperandTypes()) {
    for (const bool with_bias : {true, false}) {
      for (const std::string& variant : test_support::kVariants) {
        const std::string what = variant + " " + c10::toString(type) + (with_bias ? " bias" : "");
        const Request head = MakeRequest(type, with_bias, 11);
        const Options options{.variant = variant, .chunk_elems = kChunkElems};
        const auto whole = Open(head);
        const auto chunked = Open(head);
        ASSERT_TRUE(whole != nullptr && chunked != nullptr) << what;
        const bool takes_chunks = variant != "materialized";
        Sums want = Zeros(head);
        for (const std::uint64_t seed : {12, 13, 14}) {
          Request batch = MakeRequest(type, with_bias, seed);
          batch.inputs.weight = head.inputs.weight;
          batch.inputs.bias = head.inputs.bias;
          Options in_float32 = options;
          in_float32.grad_dtype = GradDtype::kFloat32;
          const auto alone = engine_->Gradient(batch.problem, in_float32, {}, batch.inputs, nullptr);
          const auto rounded = engine_->Gradient(batch.problem, options, {}, batch.inputs, nullptr);
          ASSERT_TRUE(alone.ok() && rounded.ok()) << what << alone.status() << rounded.status();
          want.weight.add_(AsTensor(*alone->grad_weight));
          if (with_bias) want.bias.add_(AsTensor(*alone->grad_bias));

          const auto added =
              engine_->AddToSession(whole.get(), batch.problem, options, Want(), WithoutHead(batch), nullptr);
          ASSERT_TRUE(added.ok()) << what << added.status();
          EXPECT_EQ(BytesOf(added->logp), BytesOf(rounded->logp)) << what;
          EXPECT_EQ(BytesOf(*added->grad_hidden), BytesOf(*rounded->grad_hidden)) << what;
          EXPECT_FALSE(added->grad_weight.has_value() || added->grad_bias.has_value()) << what;
          EXPECT_EQ(added->dispatch.variant, rounded->dispatch.variant) << what;
          if (takes_chunks) {
            const auto finished = AddInChunks(chunked.get(), batch, options, Want());
            ASSERT_TRUE(finished.ok()) << what << finished.status();
            EXPECT_FALSE(finished->grad_weight.has_value() || finished->grad_bias.has_value()) << what;
          }
        }
        // An addition is one rounding, on the device as here: the same bits.
        ExpectSame(Read(*whole, head), want, what);
        if (takes_chunks) ExpectSame(Read(*chunked, head), want, what + " in chunks");
        ASSERT_TRUE(engine_->ZeroSession(whole.get()).ok());
        ExpectSame(Read(*whole, head), Zeros(head), what + " zeroed");
      }
    }
  }
}

TEST_F(SessionTest, AStoppedMicroBatchAddsNothing) {
  const Request head = MakeRequest(at::kFloat, true, 11);
  const Request batch = MakeRequest(at::kFloat, true, 12);
  for (const std::string& variant : test_support::kVariants) {
    const Options options{.variant = variant, .chunk_elems = kChunkElems};
    const auto session = Open(head);
    ASSERT_NE(session, nullptr);
    int asked = 0;
    const auto counting = [&] {
      ++asked;
      return absl::OkStatus();
    };
    ASSERT_TRUE(
        engine_->AddToSession(session.get(), batch.problem, options, Want(), WithoutHead(batch), counting).ok());
    ASSERT_GT(asked, 0);  // Between chunks, where there are several, and before the addition.
    const Sums before = Read(*session, head);
    for (int stop_at = 1; stop_at <= asked; ++stop_at) {
      int left = stop_at;
      const auto stopped =
          engine_->AddToSession(session.get(), batch.problem, options, Want(), WithoutHead(batch),
                                [&] { return --left == 0 ? absl::CancelledError("enough") : absl::OkStatus(); });
      EXPECT_EQ(stopped.status().code(), absl::StatusCode::kCancelled) << variant << stop_at;
      ExpectSame(Read(*session, head), before, variant);
    }
  }
  // In chunks, what isn't finished isn't added.
  const auto session = Open(head);
  ASSERT_NE(session, nullptr);
  {
    const auto gradient =
        engine_->BeginInSession(*session, batch.problem, {.chunk_elems = kChunkElems}, Want(), WithoutHead(batch));
    ASSERT_TRUE(gradient.ok()) << gradient.status();
    ASSERT_TRUE(engine_->AddChunk(gradient->get(), batch.inputs.hidden.data).ok());
  }
  ExpectSame(Read(*session, head), Zeros(head), "unfinished");
}

TEST_F(SessionTest, WhatIsNotWantedIsNotAdded) {
  const Request head = MakeRequest(at::kFloat, true, 11);
  const Request batch = MakeRequest(at::kFloat, true, 12);
  const Options options{.chunk_elems = kChunkElems};
  const auto session = Open(head);
  ASSERT_NE(session, nullptr);
  const Want hidden_alone{true, false, false};
  const auto outputs =
      engine_->AddToSession(session.get(), batch.problem, options, hidden_alone, WithoutHead(batch), nullptr);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_TRUE(outputs->grad_hidden.has_value());
  ASSERT_TRUE(AddInChunks(session.get(), batch, options, hidden_alone).ok());
  ExpectSame(Read(*session, head), Zeros(head), "hidden alone");
}

// The head's memory is the session's own business: on a CPU it is shared and held, on a GPU it was copied.
TEST_F(SessionTest, OutlivesItsInputs) {
  Request head = MakeRequest(at::kFloat, true, 11);
  Request batch = MakeRequest(at::kFloat, true, 12);
  batch.inputs.weight = head.inputs.weight;
  batch.inputs.bias = head.inputs.bias;
  const auto want = engine_->Gradient(batch.problem, {}, {}, batch.inputs, nullptr);
  ASSERT_TRUE(want.ok()) << want.status();
  const auto session = Open(head);
  ASSERT_NE(session, nullptr);
  head.inputs = {};
  const Inputs others = WithoutHead(batch);
  batch.inputs = {};
  const auto added = engine_->AddToSession(session.get(), batch.problem, {}, Want(), others, nullptr);
  ASSERT_TRUE(added.ok()) << added.status();
  EXPECT_EQ(BytesOf(Read(*session, head).weight), BytesOf(*want->grad_weight));
}

TEST_F(SessionTest, WithoutTokensNothingChanges) {
  const Request head = MakeRequest(at::kFloat, true, 11);
  Request none = MakeRequest(at::kFloat, true, 12);
  none.problem.leading_shape = {0};
  none.problem.num_tokens = 0;
  none.inputs.hidden.spec.shape = {0, kWidth};
  none.inputs.targets.spec.shape = {0};
  none.inputs.grad_logp->spec.shape = {0};
  const auto session = Open(head);
  ASSERT_NE(session, nullptr);
  const auto added = engine_->AddToSession(session.get(), none.problem, {}, Want(), WithoutHead(none), nullptr);
  ASSERT_TRUE(added.ok()) << added.status();
  ExpectSame(Read(*session, head), Zeros(head), "no tokens");
}

}  // namespace
}  // namespace keval::linear_logp
