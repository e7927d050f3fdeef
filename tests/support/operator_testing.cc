#include "tests/support/operator_testing.h"

#include <ATen/Parallel.h>
#include <ATen/ops/tensor.h>
#include <ATen/record_function.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>

#include "base/sha256.h"
#include "core/linear_logp/autocast.h"
#include "core/linear_logp/numerics.h"

namespace keval::test_support {
namespace {

using linear_logp::AutocastScope;
using linear_logp::Gradients;
using linear_logp::Options;
using linear_logp::ReferenceInputs;
using linear_logp::ReferenceResult;
using linear_logp::VariantInputs;
using linear_logp::Want;

at::Tensor HostTensorOf(const std::vector<double>& values, at::IntArrayRef shape, at::ScalarType type) {
  return at::tensor(values, at::TensorOptions().dtype(at::kDouble)).to(type).reshape(shape);
}

std::vector<double> Rounded(const std::vector<double>& values, at::ScalarType type) {
  return Values(HostTensorOf(values, {static_cast<std::int64_t>(values.size())}, type));
}

double Norm(const double* values, std::size_t count) {
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += values[i] * values[i];
  return std::sqrt(sum);
}

// Unit roundoff of a result.
double Roundoff(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return std::ldexp(1.0, -53);
    case at::kFloat:
      return std::ldexp(1.0, -24);
    case at::kHalf:
      return std::ldexp(1.0, -11);
    default:
      return std::ldexp(1.0, -8);
  }
}

// C2's epsilon. The contract gives float64 none: there it is float32's with float64's roundoff, at 1e-13.
double Epsilon(at::ScalarType operands, double max_abs_logit) {
  if (operands == at::kDouble) return 1e-13 + 8 * std::ldexp(1.0, -53) * max_abs_logit;
  return 5e-6 + 8 * std::ldexp(1.0, -24) * max_abs_logit;
}

struct C2Gradient {
  const char* name;
  const at::Tensor* got;
  const std::vector<double>* want;
  const std::vector<double>* summed;
  std::size_t row;  // Judged in rows of so many values; 0: as a whole.
};

void ExpectGradient(const C2Gradient& gradient, double epsilon) {
  const std::vector<double> got = Values(*gradient.got);
  ASSERT_EQ(got.size(), gradient.want->size()) << gradient.name;
  if (got.empty()) return;
  const double roundoff = Roundoff(gradient.got->scalar_type());
  // A half-precision result below its smallest normal number is off by up to half a subnormal step each.
  const double subnormal = gradient.got->scalar_type() == at::kHalf ? std::ldexp(1.0, -25) : 0;
  const std::size_t row = gradient.row == 0 ? got.size() : gradient.row;
  std::vector<double> error(got.size());
  for (std::size_t i = 0; i < got.size(); ++i) error[i] = got[i] - (*gradient.want)[i];
  for (std::size_t begin = 0; begin < got.size(); begin += row) {
    const double limit = epsilon * Norm(gradient.summed->data() + begin, row) +
                         roundoff * Norm(gradient.want->data() + begin, row) +
                         subnormal * std::sqrt(static_cast<double>(row));
    EXPECT_LE(Norm(error.data() + begin, row), limit) << gradient.name << " from " << begin;
  }
}

void ExpectLogp(const Sample& sample, const std::vector<double>& got, at::ScalarType type) {
  ASSERT_EQ(got.size(), sample.want.logp.size());
  double scale = std::max(1.0, sample.want.max_abs_logit);
  for (const double want : sample.want.logp) {
    if (std::isfinite(want)) scale = std::max(scale, std::abs(want));
  }
  const double limit = 8 * (type == at::kDouble ? std::ldexp(1.0, -53) : std::ldexp(1.0, -24)) * scale;
  for (std::size_t token = 0; token < got.size(); ++token) {
    const double want = sample.want.logp[token];
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(got[token])) << "logp " << token;
    } else if (std::isinf(want)) {
      EXPECT_EQ(got[token], want) << "logp " << token;
    } else {
      EXPECT_LE(std::abs(got[token] - want), limit) << "logp " << token;
      EXPECT_LE(got[token], limit / 2) << "C8: logp " << token;  // 4 ULP of the largest logit.
    }
  }
}

// Of the one CountOps that runs. Autograd calls back on its own thread for a GPU, while the counting thread waits.
std::map<std::string, int>* counts = nullptr;

std::unique_ptr<at::ObserverContext> CountOne(const at::RecordFunction& function) {
  if (counts != nullptr) ++(*counts)[function.name()];
  return nullptr;
}

// Follows the tensor memory of one thread, as the allocators report it; a free has a negative size.
class AllocationLog final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* /*ptr*/, std::int64_t size, std::size_t /*allocated*/, std::size_t /*reserved*/,
                         c10::Device /*device*/) override {
    if (size > 0) sizes.push_back(size);
    held += size;
    peak = std::max(peak, held);
  }
  bool memoryProfilingEnabled() const override { return true; }

  std::vector<std::int64_t> sizes;
  std::int64_t held = 0;
  std::int64_t peak = 0;
};

std::shared_ptr<AllocationLog> LogAllocations(const std::function<void()>& work) {
  auto log = std::make_shared<AllocationLog>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, log);
  work();
  return log;
}

}  // namespace

const char* const kBase = "portable_matmul_add";
const char* const kCandidate = "portable_addmm";
const std::vector<std::string> kVariants = {kBase, kCandidate, "materialized"};

linear_logp::Device TestDevice() { return linear_logp::ParseDevice(TestDeviceName()).value(); }

c10::Device TestTorchDevice() { return c10::Device(TestDeviceName()); }

void OperatorTest::SetUp() {
  if (TestDevice().cuda) {
    const linear_logp::Devices devices = linear_logp::ListDevices();
    if (!devices.devices.front().device.cuda) GTEST_SKIP() << "no CUDA device: " << devices.note;
  }
  linear_logp::SetReproducibleNumerics();
  at::set_num_threads(1);  // Small products: threads would only wait for each other on a busy machine.
}

void EngineOperatorTest::SetUp() {
  OperatorTest::SetUp();
  if (IsSkipped()) return;
  auto engine = linear_logp::Engine::Create(TestDevice(), 1);
  ASSERT_TRUE(engine.ok()) << engine.status();
  engine_ = *std::move(engine);
}

std::vector<at::ScalarType> OperandTypes() {
  std::vector<at::ScalarType> types = {at::kFloat, at::kBFloat16, at::kHalf};
  if (!TestDevice().cuda) types.push_back(at::kDouble);
  return types;
}

const linear_logp::Variant& GetVariant(const std::string& name) { return *linear_logp::FindVariant(name).value(); }

Sample MakeSample(const std::string& name, const ReferenceInputs& values, at::ScalarType type) {
  Sample sample = {name, values, {}};
  sample.values.hidden = Rounded(values.hidden, type);
  sample.values.weight = Rounded(values.weight, type);
  if (values.bias) sample.values.bias = Rounded(*values.bias, type);
  if (type != at::kDouble) sample.values.grad_logp = Rounded(values.grad_logp, at::kFloat);
  sample.want = linear_logp::ComputeReference(sample.values);
  return sample;
}

ReferenceInputs ValuesOf(const LinearLogpCase& numeric_case) {
  return {.num_tokens = numeric_case.num_tokens,
          .hidden_size = numeric_case.hidden_size,
          .vocab_size = numeric_case.vocab_size,
          .hidden = numeric_case.hidden,
          .weight = numeric_case.weight,
          .bias = numeric_case.bias,
          .targets = numeric_case.targets,
          .grad_logp = numeric_case.grad_logp};
}

std::vector<Sample> CaseSamples(at::ScalarType type) {
  std::vector<Sample> samples;
  const auto cases = LoadLinearLogpCases();
  if (!cases.ok()) ADD_FAILURE() << cases.status();
  for (const LinearLogpCase& numeric_case : cases.value_or(std::vector<LinearLogpCase>())) {
    samples.push_back(MakeSample(numeric_case.name, ValuesOf(numeric_case), type));
  }
  return samples;
}

ReferenceInputs SeededValues(std::int64_t num_tokens, std::int64_t hidden_size, std::int64_t vocab_size, bool with_bias,
                             std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  // k / 64 with |k| < 128 has 7 bits; a power of two more changes none of them.
  const auto draw = [&generator](std::int64_t count, double scale) {
    std::vector<double> values(static_cast<std::size_t>(count));
    for (double& value : values) {
      value = (static_cast<double>(generator() % 255) - 127) / 64 * scale;
    }
    return values;
  };
  const double weight_scale = std::exp2(std::round(-std::log2(std::sqrt(static_cast<double>(hidden_size)))));
  ReferenceInputs values;
  values.num_tokens = num_tokens;
  values.hidden_size = hidden_size;
  values.vocab_size = vocab_size;
  values.hidden = draw(num_tokens * hidden_size, 1);
  values.weight = draw(vocab_size * hidden_size, weight_scale);
  if (with_bias) values.bias = draw(vocab_size, 1);
  values.grad_logp = draw(num_tokens, 1);
  for (std::int64_t token = 0; token < num_tokens; ++token) {
    values.targets.push_back(static_cast<std::int64_t>(generator() % static_cast<std::uint64_t>(vocab_size)));
  }
  return values;
}

const Sample& LargerSample() {
  static const Sample sample = MakeSample("seeded", SeededValues(300, 96, 5000, true, 20261130), at::kDouble);
  return sample;
}

VariantInputs ToInputs(const ReferenceInputs& values, at::ScalarType type) {
  const c10::Device device = TestTorchDevice();
  const at::ScalarType logp_type = type == at::kDouble ? at::kDouble : at::kFloat;
  VariantInputs inputs;
  inputs.hidden = HostTensorOf(values.hidden, {values.num_tokens, values.hidden_size}, type).to(device);
  inputs.weight = HostTensorOf(values.weight, {values.vocab_size, values.hidden_size}, type).to(device);
  if (values.bias) inputs.bias = HostTensorOf(*values.bias, {values.vocab_size}, type).to(device);
  inputs.targets = at::tensor(values.targets, at::TensorOptions().dtype(at::kLong)).to(device);
  inputs.grad_logp = HostTensorOf(values.grad_logp, {values.num_tokens}, logp_type).to(device);
  return inputs;
}

Result Compute(const std::string& variant, const VariantInputs& inputs, const Options& options, Want want,
               const linear_logp::ContinueCheck& check) {
  const AutocastScope autocast(inputs.hidden.device().type(), options.autocast);
  Result result;
  result.logp = GetVariant(variant).Forward(inputs, options, check, &result.dispatch);
  result.gradients = GetVariant(variant).Backward(inputs, options, want, check, &result.dispatch);
  return result;
}

std::vector<double> Values(const at::Tensor& tensor) {
  const at::Tensor host = tensor.to(at::kCPU).to(at::kDouble).contiguous();
  const auto* data = host.const_data_ptr<double>();
  return {data, data + host.numel()};
}

bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  if (a.defined() != b.defined()) return false;
  if (!a.defined()) return true;
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  if (a.numel() == 0) return true;
  const at::Tensor host_a = a.to(at::kCPU).contiguous();
  const at::Tensor host_b = b.to(at::kCPU).contiguous();
  return std::memcmp(host_a.const_data_ptr(), host_b.const_data_ptr(), host_a.nbytes()) == 0;
}

void ExpectC2(const Sample& sample, const Result& result, at::ScalarType type) {
  ExpectLogp(sample, Values(result.logp), type);
  const double epsilon = Epsilon(type, sample.want.max_abs_logit);
  const ReferenceResult& want = sample.want;
  const auto width = static_cast<std::size_t>(sample.values.hidden_size);
  for (const C2Gradient& gradient :
       {C2Gradient{"grad_hidden", &result.gradients.grad_hidden, &want.grad_hidden, &want.summed_hidden, 0},
        C2Gradient{"C14 row of grad_hidden", &result.gradients.grad_hidden, &want.grad_hidden, &want.summed_hidden,
                   width},
        C2Gradient{"grad_weight", &result.gradients.grad_weight, &want.grad_weight, &want.summed_weight, 0},
        C2Gradient{"grad_bias", &result.gradients.grad_bias, &want.grad_bias, &want.summed_bias, 0}}) {
    if (gradient.got->defined()) ExpectGradient(gradient, epsilon);
  }
}

std::map<std::string, int> CountOps(const std::function<void()>& work) {
  std::map<std::string, int> result;
  counts = &result;
  const at::CallbackHandle handle =
      at::addThreadLocalCallback(at::RecordFunctionCallback(CountOne).scopes({at::RecordScope::FUNCTION}));
  work();
  at::removeCallback(handle);
  counts = nullptr;
  return result;
}

std::vector<std::int64_t> Allocations(const std::function<void()>& work) { return LogAllocations(work)->sizes; }

std::int64_t PeakBytes(const std::function<void()>& work) { return LogAllocations(work)->peak; }

std::string Digest(const Result& result) {
  Sha256 digest;
  for (const at::Tensor& tensor :
       {result.logp, result.gradients.grad_hidden, result.gradients.grad_weight, result.gradients.grad_bias}) {
    if (!tensor.defined()) continue;
    const at::Tensor host = tensor.to(at::kCPU).contiguous();
    digest.Update(host.const_data_ptr(), host.nbytes());
  }
  return digest.FinishHex();
}

}  // namespace keval::test_support
