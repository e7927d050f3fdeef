// The engine: host memory in and out, refusals before allocation, failures told by cause, and going on afterwards.
#include "core/linear_logp/engine.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <new>
#include <stdexcept>
#include <utility>

#include "base/field_error.h"
#include "core/linear_logp/host_tensor.h"
#include "core/linear_logp/numerics.h"
#include "tests/support/operator_testing.h"

namespace keval::linear_logp {
namespace {

using test_support::Compute;
using test_support::OperandTypes;
using test_support::Result;
using test_support::ToInputs;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t kTokens = 6;
constexpr std::int64_t kWidth = 8;
constexpr std::int64_t kWords = 17;

DType KevalType(at::ScalarType type) { return ToHost(at::empty({0}, type), {0}).spec.dtype; }

// A request as the server makes it, and the tensors it was made of.
struct Request {
  VariantInputs tensors;
  Problem problem;
  Inputs inputs;
};

Request MakeRequest(at::ScalarType type, const ReferenceInputs& values, std::vector<std::int64_t> leading_shape) {
  Request request;
  request.tensors = ToInputs(values, type);
  std::vector<std::int64_t> hidden_shape = leading_shape;
  hidden_shape.push_back(values.hidden_size);
  request.inputs.hidden = ToHost(request.tensors.hidden, hidden_shape);
  request.inputs.weight = ToHost(request.tensors.weight, {values.vocab_size, values.hidden_size});
  request.inputs.targets = ToHost(request.tensors.targets, leading_shape);
  request.inputs.grad_logp = ToHost(request.tensors.grad_logp, leading_shape);
  TensorSpecs specs = {.hidden = request.inputs.hidden.spec,
                       .weight = request.inputs.weight.spec,
                       .targets = request.inputs.targets.spec,
                       .grad_logp = request.inputs.grad_logp->spec};
  if (values.bias) {
    request.inputs.bias = ToHost(request.tensors.bias, {values.vocab_size});
    specs.bias = request.inputs.bias->spec;
  }
  request.problem = ValidateProblem(specs, !test_support::TestDevice().cuda).value();
  return request;
}

Request SmallRequest(at::ScalarType type = at::kFloat, std::vector<std::int64_t> leading_shape = {2, 3}) {
  return MakeRequest(type, test_support::SeededValues(kTokens, kWidth, kWords, true, 4), std::move(leading_shape));
}

// The same bytes, at an address that is one past a multiple of 64.
HostTensor Misaligned(const HostTensor& tensor) {
  const std::int64_t bytes = NumBytes("tensor", tensor.spec).value();
  auto memory = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(bytes) + 128);
  const auto address = reinterpret_cast<std::uintptr_t>(memory->data());  // NOLINT(*-reinterpret-cast)
  std::byte* start = memory->data() + (64 - address % 64) + 1;
  std::memcpy(start, tensor.data, static_cast<std::size_t>(bytes));
  return {tensor.spec, start, memory};
}

void ExpectSameBytes(const HostTensor& got, const at::Tensor& want) {
  const HostTensor host = ToHost(want, got.spec.shape);
  ASSERT_EQ(got.spec, host.spec);
  EXPECT_EQ(std::memcmp(got.data, host.data, static_cast<std::size_t>(NumBytes("", got.spec).value())), 0);
}

void ExpectSameBytes(const Outputs& got, const Result& want) {
  ExpectSameBytes(got.logp, want.logp);
  ExpectSameBytes(*got.grad_hidden, want.gradients.grad_hidden);
  ExpectSameBytes(*got.grad_weight, want.gradients.grad_weight);
  ExpectSameBytes(*got.grad_bias, want.gradients.grad_bias);
}

class EngineTest : public test_support::EngineOperatorTest {
 protected:
  absl::StatusOr<Outputs> Gradient(const Request& request, const Options& options = {}, Want want = {},
                                   const ContinueCheck& check = nullptr) {
    return engine_->Gradient(request.problem, options, want, request.inputs, check);
  }

  // After whatever went wrong, an ordinary request is answered.
  void ExpectStillServes() {
    EXPECT_TRUE(engine_->Healthy());
    const auto outputs = Gradient(SmallRequest());
    EXPECT_TRUE(outputs.ok()) << outputs.status();
  }
};

TEST_F(EngineTest, AnswersWithTheVariantsBitsInTheRequestsShapes) {
  for (const at::ScalarType type : OperandTypes()) {
    for (const std::string& variant : test_support::kVariants) {
      Request request = SmallRequest(type);
      const auto outputs = Gradient(request, {.variant = variant});
      ASSERT_TRUE(outputs.ok()) << outputs.status();
      ExpectSameBytes(*outputs, Compute(variant, request.tensors));
      EXPECT_EQ(outputs->logp.spec.shape, (std::vector<std::int64_t>{2, 3}));
      EXPECT_EQ(outputs->grad_hidden->spec, (TensorSpec{KevalType(type), {2, 3, kWidth}}));
      EXPECT_EQ(outputs->dispatch.requested_variant, variant);
      EXPECT_EQ(outputs->dispatch.variant, variant);
    }
  }
}

TEST_F(EngineTest, ForwardAloneAndPartialWantsLeaveTheRestOut) {
  const Request request = SmallRequest();
  const auto forward = engine_->Forward(request.problem, {}, request.inputs, nullptr);
  ASSERT_TRUE(forward.ok()) << forward.status();
  EXPECT_FALSE(forward->grad_hidden || forward->grad_weight || forward->grad_bias);
  const auto bias_only = Gradient(request, {}, {false, false, true});
  ASSERT_TRUE(bias_only.ok()) << bias_only.status();
  EXPECT_FALSE(bias_only->grad_hidden || bias_only->grad_weight);
  EXPECT_TRUE(bias_only->grad_bias.has_value());
}

TEST_F(EngineTest, C3C7MisalignedInt32AndAnyLeadingShapeGiveTheSameBits) {
  for (const at::ScalarType type : OperandTypes()) {
    SCOPED_TRACE(c10::toString(type));
    const Request request = SmallRequest(type);
    const Result want = Compute("portable_addmm", request.tensors);
    Request moved = request;
    for (HostTensor* tensor : {&moved.inputs.hidden, &moved.inputs.weight, &*moved.inputs.bias, &moved.inputs.targets,
                               &*moved.inputs.grad_logp}) {
      *tensor = Misaligned(*tensor);
    }
    const auto outputs = Gradient(moved);
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    ExpectSameBytes(*outputs, want);

    Request narrow = request;
    narrow.inputs.targets = ToHost(request.tensors.targets.to(at::kInt), {2, 3});
    narrow.problem.targets_dtype = DType::kInt32;
    const auto narrow_outputs = Gradient(narrow);
    ASSERT_TRUE(narrow_outputs.ok()) << narrow_outputs.status();
    ExpectSameBytes(*narrow_outputs, want);

    const auto flat = Gradient(SmallRequest(type, {kTokens}));
    ASSERT_TRUE(flat.ok()) << flat.status();
    ExpectSameBytes(*flat, want);
  }
}

TEST_F(EngineTest, C7OneUpstreamNumberIsReadOnceForEveryToken) {
  ReferenceInputs values = test_support::SeededValues(kTokens, kWidth, kWords, true, 4);
  values.grad_logp.assign(kTokens, 0.375);
  for (const at::ScalarType type : OperandTypes()) {
    SCOPED_TRACE(c10::toString(type));
    const Request stored = MakeRequest(type, values, {kTokens});
    Request one = stored;
    const HostTensor& upstream = *stored.inputs.grad_logp;
    const TensorSpec spec = {upstream.spec.dtype, {}};
    // Under ASan a read past it is an error.
    const auto memory =
        std::make_shared<std::vector<std::byte>>(upstream.data, upstream.data + NumBytes("", spec).value());
    one.inputs.grad_logp = HostTensor{spec, memory->data(), memory};
    one.inputs.grad_logp_is_scalar = true;
    const auto outputs = Gradient(one);
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    ExpectSameBytes(*outputs, Compute("portable_addmm", stored.tensors));
  }
}

TEST_F(EngineTest, C4NoTokens) {
  Request request = MakeRequest(at::kFloat, test_support::SeededValues(0, kWidth, kWords, true, 4), {0});
  for (const bool scalar : {false, true}) {
    request.inputs.grad_logp_is_scalar = scalar;
    for (const std::string& variant : test_support::kVariants) {
      const auto outputs = Gradient(request, {.variant = variant});
      ASSERT_TRUE(outputs.ok()) << outputs.status();
      EXPECT_EQ(outputs->logp.spec.shape, (std::vector<std::int64_t>{0}));
      EXPECT_EQ(outputs->grad_hidden->spec.shape, (std::vector<std::int64_t>{0, kWidth}));
      const std::vector<std::byte> zeros(kWords * kWidth * 4);
      EXPECT_EQ(std::memcmp(outputs->grad_weight->data, zeros.data(), zeros.size()), 0);
    }
  }
}

TEST_F(EngineTest, RefusesBadTargetsOptionsAndVariantsByField) {
  Request request = SmallRequest();
  const std::vector<std::int64_t> targets = {0, 1, 2, -100, 4, 5};
  request.inputs.targets.data = reinterpret_cast<const std::byte*>(targets.data());  // NOLINT(*-reinterpret-cast)
  const auto bad_target = Gradient(request);
  EXPECT_EQ(bad_target.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(GetFieldViolation(bad_target.status())->field, "targets");
  EXPECT_EQ(GetFieldViolation(Gradient(SmallRequest(), {.variant = "nonesuch"}).status())->field, "variant");
  EXPECT_EQ(GetFieldViolation(Gradient(SmallRequest(), {.chunk_elems = 0}).status())->field, "chunk_elems");
  ExpectStillServes();
}

TEST_F(EngineTest, P7ForceRefusesAFallbackAndWithoutItTheFallbackIsNamed) {
  const Request request = SmallRequest();
  Options options = {.autocast = Autocast::kBFloat16};
  const auto fallen_back = Gradient(request, options);
  ASSERT_TRUE(fallen_back.ok()) << fallen_back.status();
  EXPECT_TRUE(fallen_back->dispatch.fallback);
  EXPECT_TRUE(engine_->Supports(request.problem, options)->fallback);
  options.force_variant = true;
  const auto forced = Gradient(request, options);
  EXPECT_EQ(forced.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(forced.status().message()), HasSubstr("autocast is on"));
  ASSERT_TRUE(GetFieldViolation(forced.status()).has_value());
  EXPECT_EQ(GetFieldViolation(forced.status())->field, "force_variant");
  // A forward has no table to update, so nothing to fall back from.
  EXPECT_TRUE(engine_->Forward(request.problem, options, request.inputs, nullptr).ok());
}

TEST_F(EngineTest, ACallIsStoppedBetweenChunksWithTheCheckersStatus) {
  int asked = 0;
  const auto outputs = Gradient(SmallRequest(), {.chunk_elems = 1}, {}, [&asked] {
    return ++asked > 3 ? absl::DeadlineExceededError("too late") : absl::OkStatus();
  });
  EXPECT_EQ(outputs.status(), absl::DeadlineExceededError("too late"));
  EXPECT_EQ(asked, 4);
  ExpectStillServes();
}

TEST_F(EngineTest, MoreThanTheDeviceHasIsRefusedBeforeAnythingIsAllocated) {
  // 2^20 tokens and words of width 1: 8 MiB of operands, 4 TiB of logits.
  constexpr std::int64_t kMany = std::int64_t{1} << 20;
  Request request;
  request.problem = ValidateProblem({.hidden = {DType::kFloat32, {kMany, 1}},
                                     .weight = {DType::kFloat32, {kMany, 1}},
                                     .targets = {DType::kInt64, {kMany}},
                                     .grad_logp = TensorSpec{DType::kFloat32, {kMany}}},
                                    true)
                        .value();
  const auto zeros = std::make_shared<std::vector<std::byte>>(kMany * 8);
  for (HostTensor* tensor :
       {&request.inputs.hidden, &request.inputs.weight, &request.inputs.targets, &request.inputs.grad_logp.emplace()}) {
    *tensor = {{DType::kFloat32, {kMany}}, zeros->data(), zeros};
  }
  request.inputs.targets.spec.dtype = DType::kInt64;
  const Options options = {.variant = "materialized"};
  const std::int64_t needed = engine_->EstimateBytes(request.problem, options, {}).value();
  EXPECT_GT(needed, std::int64_t{8} << 40);
  absl::Status status;
  const std::vector<std::int64_t> allocations =
      test_support::Allocations([&] { status = Gradient(request, options).status(); });
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr(std::to_string(needed) + " bytes needed"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("bytes free"));
  EXPECT_TRUE(allocations.empty());
  ExpectStillServes();
}

TEST_F(EngineTest, TheEstimateIsNeverBelowWhatACallHoldsAtOnce) {
  // More than the estimate's fixed part, so that its terms are what is judged.
  constexpr std::int64_t kFixed = std::int64_t{64} << 20;
  const ReferenceInputs values = test_support::SeededValues(1000, 64, 20000, true, 4);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const Request request = MakeRequest(type, values, {1000});
    for (const std::string& variant : test_support::kVariants) {
      for (const Autocast autocast : {Autocast::kNone, Autocast::kBFloat16}) {
        const Options options = {.variant = variant, .autocast = autocast, .chunk_elems = std::int64_t{1} << 22};
        const std::int64_t peak = test_support::PeakBytes([&] { ASSERT_TRUE(Gradient(request, options).ok()); });
        EXPECT_GT(peak, 0);
        EXPECT_GE(engine_->EstimateBytes(request.problem, options, {}).value() - kFixed, peak)
            << variant << ' ' << c10::toString(type) << " autocast " << static_cast<int>(autocast);
      }
    }
  }
}

// A variant that fails in the way its test asks for.
class Failing final : public Variant {
 public:
  using Failure = std::function<void()>;
  explicit Failing(Failure failure, bool supported = true) : failure_(std::move(failure)), supported_(supported) {}
  VariantDescription Describe() const override { return {.name = "failing", .cpu = true, .cuda = true}; }
  Support Supports(const Problem& /*problem*/, const Options& /*options*/, const Device& /*device*/) const override {
    return {supported_, supported_ ? "" : "it never does"};
  }
  std::int64_t ScratchBytes(const Problem& /*problem*/, const Options& /*options*/, Want /*want*/) const override {
    return 0;
  }
  at::Tensor Forward(const VariantInputs& /*inputs*/, const Options& /*options*/, const ContinueCheck& /*check*/,
                     Dispatch* /*dispatch*/) const override {
    failure_();
    return {};
  }
  Gradients Backward(const VariantInputs& /*inputs*/, const Options& /*options*/, Want /*want*/,
                     const ContinueCheck& /*check*/, Dispatch* /*dispatch*/) const override {
    return {};
  }

 private:
  Failure failure_;
  bool supported_;
};

TEST_F(EngineTest, AFailureHasItsCodeAndTheNextRequestIsAnswered) {
  struct Row {
    Failing::Failure failure;
    absl::StatusCode code;
  };
  const std::vector<Row> rows = {
      {[] { TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory"); }, absl::StatusCode::kResourceExhausted},
      {[] { throw std::bad_alloc(); }, absl::StatusCode::kResourceExhausted},
      {[] { at::empty({std::int64_t{1} << 50}, at::TensorOptions(test_support::TestTorchDevice())); },
       absl::StatusCode::kResourceExhausted},
      {[] { TORCH_CHECK(false, "broken in /pytorch/aten/src/secret.cpp:1"); }, absl::StatusCode::kInternal},
      {[] { throw std::runtime_error("broken in /home/build/secret.cc"); }, absl::StatusCode::kInternal},
      {[] { throw Stopped{absl::CancelledError("gone")}; }, absl::StatusCode::kCancelled}};
  for (const Row& row : rows) {
    const ScopedVariantForTest scoped(std::make_unique<Failing>(row.failure));
    const auto outputs = Gradient(SmallRequest(), {.variant = "failing"});
    EXPECT_EQ(outputs.status().code(), row.code) << outputs.status();
    EXPECT_THAT(std::string(outputs.status().message()), Not(HasSubstr("/")));
    EXPECT_THAT(std::string(outputs.status().message()), Not(HasSubstr("frame #")));
    ExpectStillServes();
  }
}

TEST_F(EngineTest, AVariantThatDeclinesIsReplacedByNameOrRefusedWhenForced) {
  const ScopedVariantForTest scoped(std::make_unique<Failing>([] { FAIL() << "it ran"; }, /*supported=*/false));
  const auto outputs = Gradient(SmallRequest(), {.variant = "failing"});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_EQ(outputs->dispatch.requested_variant, "failing");
  EXPECT_EQ(outputs->dispatch.variant, "portable_addmm");
  EXPECT_TRUE(outputs->dispatch.fallback);
  EXPECT_THAT(outputs->dispatch.reason, HasSubstr("it never does"));
  const auto forced = Gradient(SmallRequest(), {.variant = "failing", .force_variant = true});
  EXPECT_EQ(forced.status().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(GetFieldViolation(forced.status()).has_value());
  EXPECT_EQ(GetFieldViolation(forced.status())->field, "force_variant");
  EXPECT_EQ(GetFieldViolation(forced.status())->limit, "it never does");
  EXPECT_FALSE(FindVariant("nonesuch").ok());
}

TEST_F(EngineTest, TheNumericSwitchesAreSetAndRecorded) {
  const Numerics numerics = ReadNumerics();
  EXPECT_FALSE(numerics.tf32_matmul || numerics.tf32_convolution);
  EXPECT_FALSE(numerics.reduced_precision_float16 || numerics.reduced_precision_bfloat16);
  EXPECT_FALSE(numerics.deterministic);  // C3 holds without it: numerics.h says why.
  EXPECT_FALSE(numerics.fill_uninitialized);
}

}  // namespace
}  // namespace keval::linear_logp
