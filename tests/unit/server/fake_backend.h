// A GradientBackend without LibTorch, and a platform made of it.
#ifndef KEVAL_TESTS_UNIT_SERVER_FAKE_BACKEND_H_
#define KEVAL_TESTS_UNIT_SERVER_FAKE_BACKEND_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/linear_logp/chunk_plan.h"
#include "server/gradient_backend.h"
#include "server/kevald.h"
#include "server/round_collector.h"

namespace keval::server {

// What tests set and see; shared with the backend, whose thread is the executor's.
struct FakeControl {
  // Called in the middle of every Forward and Gradient; an error ends them.
  std::function<absl::Status(const linear_logp::ContinueCheck&)> compute = [](const linear_logp::ContinueCheck&) {
    return absl::OkStatus();
  };
  std::atomic<bool> healthy = true;
  std::atomic<int> calls = 0;
  std::atomic<int> chunks = 0;                  // Computed.
  std::atomic<int> open = 0;                    // Chunked gradients between Begin and their end.
  std::atomic<int> sessions = 0;                // What sessions keep on the device.
  bool takes_chunks = false;                    // Of both variants.
  std::atomic<std::int64_t> free_bytes = 1000;  // Negative: the question fails.
  std::atomic<int> free_bytes_asked = 0;
  std::atomic<int> caches_released = 0;
};

// Every byte of every result is 7, so that a test can tell that results travelled whole.
inline constexpr int kFakeByte = 7;

class FakeBackend final : public GradientBackend {
 public:
  explicit FakeBackend(std::shared_ptr<FakeControl> control) : control_(std::move(control)) {}

  absl::StatusOr<linear_logp::Support> Supports(const linear_logp::Problem& /*problem*/,
                                                const linear_logp::Options& /*options*/) const override {
    return linear_logp::Support{true, ""};
  }
  absl::StatusOr<std::int64_t> EstimateBytes(const linear_logp::Problem& /*problem*/,
                                             const linear_logp::Options& /*options*/,
                                             linear_logp::Want /*want*/) const override {
    return 12345;
  }
  absl::StatusOr<linear_logp::Outputs> Forward(const linear_logp::Problem& problem, const linear_logp::Options& options,
                                               const linear_logp::Inputs& inputs,
                                               const linear_logp::ContinueCheck& check) override {
    return Gradient(problem, options, {false, false, false}, inputs, check);
  }
  absl::StatusOr<linear_logp::Outputs> Gradient(const linear_logp::Problem& problem,
                                                const linear_logp::Options& options, linear_logp::Want want,
                                                const linear_logp::Inputs& /*inputs*/,
                                                const linear_logp::ContinueCheck& check) override {
    ++control_->calls;
    if (absl::Status status = control_->compute(check); !status.ok()) return status;
    std::vector<std::int64_t> hidden_shape = problem.leading_shape;
    hidden_shape.push_back(problem.hidden_size);
    linear_logp::Outputs outputs;
    outputs.logp = Filled({problem.LogpDtype(), problem.leading_shape});
    if (want.hidden) outputs.grad_hidden = Filled({problem.dtype, hidden_shape});
    if (want.weight) outputs.grad_weight = Filled({problem.dtype, {problem.vocab_size, problem.hidden_size}});
    if (want.bias) outputs.grad_bias = Filled({problem.dtype, {problem.vocab_size}});
    outputs.dispatch.variant = options.variant;
    return outputs;
  }
  absl::StatusOr<std::unique_ptr<linear_logp::ChunkedGradient>> Begin(const linear_logp::Problem& problem,
                                                                      const linear_logp::Options& options,
                                                                      linear_logp::Want want,
                                                                      const linear_logp::Inputs& /*inputs*/) override {
    ++control_->calls;
    auto gradient = std::make_unique<Chunked>(control_);
    gradient->problem = problem;
    gradient->want = want;
    gradient->plan =
        *linear_logp::MakeChunkPlan(problem.num_tokens, problem.hidden_size, problem.vocab_size, options.chunk_elems);
    return gradient;
  }
  // grad_hidden is hidden itself, logp the chunk's number in every byte.
  absl::StatusOr<linear_logp::Outputs> AddChunk(linear_logp::ChunkedGradient* gradient,
                                                const std::byte* hidden) override {
    auto* const chunked = static_cast<Chunked*>(gradient);
    if (absl::Status status = control_->compute([] { return absl::OkStatus(); }); !status.ok()) return status;
    const linear_logp::Problem& problem = chunked->problem;
    const std::int64_t tokens =
        std::min(chunked->plan.chunk_tokens, problem.num_tokens - chunked->next * chunked->plan.chunk_tokens);
    linear_logp::Outputs outputs;
    outputs.logp = Filled({problem.LogpDtype(), {tokens}}, static_cast<std::byte>(chunked->next++));
    if (chunked->want.hidden) {
      const TensorSpec spec{problem.dtype, {tokens, problem.hidden_size}};
      const auto bytes = static_cast<std::size_t>(NumBytes("result", spec).value());
      const auto data = std::make_shared<std::vector<std::byte>>(hidden, hidden + bytes);
      outputs.grad_hidden = linear_logp::HostTensor{spec, data->data(), data};
    }
    ++control_->chunks;
    return outputs;
  }
  absl::StatusOr<linear_logp::Outputs> Finish(linear_logp::ChunkedGradient* gradient) override {
    const auto* const chunked = static_cast<const Chunked*>(gradient);
    const linear_logp::Problem& problem = chunked->problem;
    linear_logp::Outputs outputs;
    if (chunked->want.weight) outputs.grad_weight = Filled({problem.dtype, {problem.vocab_size, problem.hidden_size}});
    if (chunked->want.bias) outputs.grad_bias = Filled({problem.dtype, {problem.vocab_size}});
    outputs.dispatch.chunks = chunked->next;
    return outputs;
  }
  absl::StatusOr<std::unique_ptr<linear_logp::SessionTensors>> OpenSession(
      const linear_logp::Problem& problem, const linear_logp::Inputs& /*inputs*/) override {
    auto session = std::make_unique<Session>(control_);
    session->weight.resize(static_cast<std::size_t>(problem.vocab_size * problem.hidden_size));
    if (problem.has_bias) session->bias.resize(static_cast<std::size_t>(problem.vocab_size));
    return session;
  }
  // A micro-batch adds its number of tokens to every element.
  absl::StatusOr<linear_logp::Outputs> AddToSession(linear_logp::SessionTensors* session,
                                                    const linear_logp::Problem& problem,
                                                    const linear_logp::Options& options, linear_logp::Want want,
                                                    const linear_logp::Inputs& inputs,
                                                    const linear_logp::ContinueCheck& check) override {
    absl::StatusOr<linear_logp::Outputs> outputs =
        Gradient(problem, options, {want.hidden, false, false}, inputs, check);
    if (!outputs.ok()) return outputs;
    if (absl::Status status = check(); !status.ok()) return status;
    static_cast<Session*>(session)->Add(problem, want);
    return outputs;
  }
  absl::StatusOr<std::unique_ptr<linear_logp::ChunkedGradient>> BeginInSession(
      const linear_logp::SessionTensors& /*session*/, const linear_logp::Problem& problem,
      const linear_logp::Options& options, linear_logp::Want want, const linear_logp::Inputs& inputs) override {
    return Begin(problem, options, want, inputs);
  }
  absl::StatusOr<linear_logp::Outputs> FinishInSession(linear_logp::ChunkedGradient* gradient,
                                                       linear_logp::SessionTensors* session) override {
    const auto* const chunked = static_cast<const Chunked*>(gradient);
    static_cast<Session*>(session)->Add(chunked->problem, chunked->want);
    linear_logp::Outputs outputs;
    outputs.dispatch.chunks = chunked->next;
    return outputs;
  }
  absl::Status ReadSession(const linear_logp::SessionTensors& session, std::byte* weight, std::byte* bias) override {
    const auto copy = [](const std::vector<float>& sum, std::byte* to) {
      if (!sum.empty()) std::memcpy(to, sum.data(), sum.size() * sizeof(float));
    };
    copy(static_cast<const Session&>(session).weight, weight);
    copy(static_cast<const Session&>(session).bias, bias);
    return absl::OkStatus();
  }
  absl::Status ZeroSession(linear_logp::SessionTensors* session) override {
    for (std::vector<float>* const sum :
         {&static_cast<Session*>(session)->weight, &static_cast<Session*>(session)->bias}) {
      std::fill(sum->begin(), sum->end(), 0.0F);
    }
    return absl::OkStatus();
  }
  absl::StatusOr<std::int64_t> FreeBytes() const override {
    ++control_->free_bytes_asked;
    if (control_->free_bytes < 0) return absl::FailedPreconditionError("the device can't be asked");
    return control_->free_bytes.load();
  }
  void ReleaseCache() override { ++control_->caches_released; }
  bool Healthy() const override { return control_->healthy; }

 private:
  struct Chunked final : linear_logp::ChunkedGradient {
    explicit Chunked(std::shared_ptr<FakeControl> control_in) : control(std::move(control_in)) { ++control->open; }
    ~Chunked() override { --control->open; }
    const std::shared_ptr<FakeControl> control;
    linear_logp::Problem problem;
    linear_logp::Want want;
    linear_logp::ChunkPlan plan;
    std::int64_t next = 0;
  };

  struct Session final : linear_logp::SessionTensors {
    explicit Session(std::shared_ptr<FakeControl> control_in) : control(std::move(control_in)) { ++control->sessions; }
    ~Session() override { --control->sessions; }
    void Add(const linear_logp::Problem& problem, linear_logp::Want want) {
      const auto tokens = static_cast<float>(problem.num_tokens);
      const auto add = [tokens](std::vector<float>* sum) {
        for (float& element : *sum) element += tokens;
      };
      if (want.weight) add(&weight);
      if (want.bias) add(&bias);
    }
    const std::shared_ptr<FakeControl> control;
    std::vector<float> weight;
    std::vector<float> bias;
  };

  static linear_logp::HostTensor Filled(TensorSpec spec, std::byte value = std::byte{kFakeByte}) {
    const auto bytes = static_cast<std::size_t>(NumBytes("result", spec).value());
    const auto data = std::make_shared<std::vector<std::byte>>(bytes, value);
    return {std::move(spec), data->data(), data};
  }

  const std::shared_ptr<FakeControl> control_;
};

inline BackendFactory FakeFactory(std::shared_ptr<FakeControl> control) {
  return [control = std::move(control)]() -> absl::StatusOr<std::unique_ptr<GradientBackend>> {
    return std::make_unique<FakeBackend>(control);
  };
}

// Measures two rows of a contract, and nothing else: no worker can be started.
class FakeCollector final : public RoundCollector {
 public:
  absl::StatusOr<Collected<PilotData>> Pilot(const JobArms&, const std::vector<SeriesRun>&, DeviceLease*,
                                             const Check&) override {
    return Failure();
  }
  absl::StatusOr<Collected<RoundData>> Round(const JobArms&, const std::vector<SeriesRun>&, int, DeviceLease*,
                                             const Check&) override {
    return Failure();
  }
  absl::StatusOr<Collected<std::vector<ContractRowData>>> Contract(
      const JobArms& arms, const std::function<void(const ContractRowData&)>& row, DeviceLease*,
      const Check& check) override {
    if (arms.seed == 13) return Failure();
    if (arms.seed == 14) return WorkFailure{"base", "CRASHED", "wrote \x1b[2J" + std::string(5000, 'x'), false, {}};
    const std::vector<ContractRowData> rows = {{"C1", "both", "float32/plain", 1e-7, 1e-6, "pass", ""},
                                               {"C9", "base", "", 0, 0, "not_applicable", "no such device"}};
    for (const ContractRowData& data : rows) {
      if (absl::Status status = check(); !status.ok()) return status;
      row(data);
    }
    return rows;
  }
  absl::StatusOr<Collected<ProfileData>> Profile(const JobArms&, const std::vector<SeriesRun>&, DeviceLease*,
                                                 const Check&) override {
    return Failure();
  }
  absl::StatusOr<Collected<DiagnosticsData>> Diagnose(const JobArms&, const std::vector<DiagnosticRun>&, DeviceLease*,
                                                      const Check&) override {
    return Failure();
  }
  absl::StatusOr<Collected<std::map<std::string, std::string>>> Environment(const JobArms&, const Check&) override {
    return Failure();
  }

 private:
  static WorkFailure Failure() { return {"candidate", "CRASHED", "signal 11", false, {}}; }
};

// One CPU with `memory_bytes` bytes and the two production variants.
inline Platform FakePlatform(const std::shared_ptr<FakeControl>& control, std::int64_t memory_bytes = 0) {
  Platform platform;
  linear_logp::DeviceDescription cpu;
  cpu.memory_bytes = memory_bytes;
  platform.devices = {cpu};
  for (const char* name : {"portable_matmul_add", "portable_addmm"}) {
    linear_logp::VariantDescription variant;
    variant.name = name;
    variant.cpu = true;
    variant.takes_chunks = control->takes_chunks;
    platform.variants.push_back(variant);
  }
  platform.backends = [control](const linear_logp::DeviceDescription&) { return FakeFactory(control); };
  platform.collectors = [] { return std::make_unique<FakeCollector>(); };
  return platform;
}

}  // namespace keval::server

#endif  // KEVAL_TESTS_UNIT_SERVER_FAKE_BACKEND_H_
