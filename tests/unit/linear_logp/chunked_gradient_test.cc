// Gradients whose hidden comes a chunk at a time: the bits of one call, whatever runs in between.
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/linear_logp/chunk_plan.h"
#include "core/linear_logp/engine.h"
#include "core/linear_logp/host_tensor.h"
#include "tests/support/operator_testing.h"
#include "tests/unit/linear_logp/engine_request.h"

namespace keval::linear_logp {
namespace {

using test_support::OperandTypes;

std::string BytesOf(const std::optional<HostTensor>& tensor) { return tensor ? BytesOf(*tensor) : "none"; }

// What a chunked gradient gave, put together.
struct Gathered {
  std::string logp;
  std::string grad_hidden;
  Outputs end;
};

class ChunkedGradientTest : public test_support::EngineOperatorTest {
 protected:
  Gathered RunChunks(const Request& request, const Options& options, Want want) {
    Gathered gathered;
    Inputs others = request.inputs;
    others.hidden = {};
    const auto gradient = engine_->Begin(request.problem, options, want, others);
    EXPECT_TRUE(gradient.ok() && *gradient != nullptr) << gradient.status();
    const ChunkPlan plan = *MakeChunkPlan(kTokens, kWidth, kWords, options.chunk_elems);
    const std::int64_t row_bytes = kWidth * DTypeSize(request.problem.dtype);
    for (std::int64_t chunk = 0; chunk < plan.chunks; ++chunk) {
      const auto outputs =
          engine_->AddChunk(gradient->get(), request.inputs.hidden.data + chunk * plan.chunk_tokens * row_bytes);
      EXPECT_TRUE(outputs.ok()) << outputs.status();
      gathered.logp += BytesOf(outputs->logp);
      if (outputs->grad_hidden) gathered.grad_hidden += BytesOf(*outputs->grad_hidden);
      // Others use the engine meanwhile, under another autocast state.
      Options other = options;
      other.autocast = Autocast::kBFloat16;
      const Request whole = MakeRequest(at::kFloat, true);
      EXPECT_TRUE(engine_->Gradient(whole.problem, other, {}, whole.inputs, nullptr).ok());
    }
    auto end = engine_->Finish(gradient->get());
    EXPECT_TRUE(end.ok()) << end.status();
    gathered.end = *std::move(end);
    return gathered;
  }
};

TEST_F(ChunkedGradientTest, HasTheBitsOfOneCall) {
  for (const char* variant : {"portable_matmul_add", "portable_addmm"}) {
    for (const at::ScalarType type : OperandTypes()) {
      for (const bool with_bias : {true, false}) {
        for (const Autocast autocast : {Autocast::kNone, Autocast::kBFloat16}) {
          for (const GradDtype grad_dtype : {GradDtype::kInput, GradDtype::kFloat32}) {
            if (type == at::kDouble && autocast != Autocast::kNone) continue;
            const Request request = MakeRequest(type, with_bias);
            Options options;
            options.variant = variant;
            options.autocast = autocast;
            options.grad_dtype = grad_dtype;
            options.chunk_elems = kChunkElems;
            const auto whole = engine_->Gradient(request.problem, options, {}, request.inputs, nullptr);
            ASSERT_TRUE(whole.ok()) << whole.status();
            const Gathered chunks = RunChunks(request, options, {});
            const std::string which = std::string(variant) + " " + c10::toString(type);
            EXPECT_EQ(chunks.logp, BytesOf(whole->logp)) << which;
            EXPECT_EQ(chunks.grad_hidden, BytesOf(*whole->grad_hidden)) << which;
            EXPECT_EQ(BytesOf(chunks.end.grad_weight), BytesOf(whole->grad_weight)) << which;
            EXPECT_EQ(BytesOf(chunks.end.grad_bias), BytesOf(whole->grad_bias)) << which;
            EXPECT_EQ(chunks.end.grad_weight->spec, whole->grad_weight->spec) << which;
            EXPECT_EQ(chunks.end.dispatch.path, whole->dispatch.path) << which;
            EXPECT_EQ(chunks.end.dispatch.reason, whole->dispatch.reason) << which;
            EXPECT_EQ(chunks.end.dispatch.fallback, whole->dispatch.fallback) << which;
            EXPECT_EQ(chunks.end.dispatch.chunks, 3) << which;
          }
        }
      }
    }
  }
}

TEST_F(ChunkedGradientTest, LeavesOutWhatIsNotWanted) {
  const Request request = MakeRequest(at::kFloat, true);
  Options options;
  options.chunk_elems = kChunkElems;
  for (const Want want : {Want{true, false, false}, Want{false, true, false}, Want{false, false, true}}) {
    const auto whole = engine_->Gradient(request.problem, options, want, request.inputs, nullptr);
    ASSERT_TRUE(whole.ok());
    const Gathered chunks = RunChunks(request, options, want);
    EXPECT_EQ(chunks.grad_hidden, want.hidden ? BytesOf(*whole->grad_hidden) : "");
    EXPECT_EQ(BytesOf(chunks.end.grad_weight), BytesOf(whole->grad_weight));
    EXPECT_EQ(BytesOf(chunks.end.grad_bias), BytesOf(whole->grad_bias));
  }
  Request forward = request;
  forward.problem.has_grad_logp = false;
  forward.inputs.grad_logp.reset();
  const auto whole = engine_->Forward(request.problem, options, request.inputs, nullptr);
  ASSERT_TRUE(whole.ok());
  const Gathered chunks = RunChunks(forward, options, {false, false, false});
  EXPECT_EQ(chunks.logp, BytesOf(whole->logp));
  EXPECT_EQ(chunks.end.dispatch.path, whole->dispatch.path);
}

TEST_F(ChunkedGradientTest, IsNotForVariantsThatNeedAllTokensNorForNone) {
  Options options;
  options.variant = "materialized";
  const Request request = MakeRequest(at::kFloat, true);
  const auto materialized = engine_->Begin(request.problem, options, {}, request.inputs);
  ASSERT_TRUE(materialized.ok()) << materialized.status();
  EXPECT_EQ(*materialized, nullptr);
  Request none = request;
  none.problem.num_tokens = 0;
  none.problem.leading_shape = {0};
  const auto empty = engine_->Begin(none.problem, {}, {}, none.inputs);
  ASSERT_TRUE(empty.ok()) << empty.status();
  EXPECT_EQ(*empty, nullptr);
}

TEST_F(ChunkedGradientTest, RefusesWhatOneCallRefuses) {
  Request request = MakeRequest(at::kFloat, true);
  std::vector<std::int64_t> targets(kTokens, kWords);
  request.inputs.targets.data = reinterpret_cast<const std::byte*>(targets.data());  // NOLINT(*-reinterpret-cast)
  EXPECT_EQ(engine_->Begin(request.problem, {}, {}, request.inputs).status().code(),
            absl::StatusCode::kInvalidArgument);
  Options unknown;
  unknown.variant = "no_such";
  EXPECT_EQ(engine_->Begin(request.problem, unknown, {}, request.inputs).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace keval::linear_logp
