#include "server/engine_backend.h"

#include <cstddef>
#include <memory>
#include <utility>

namespace keval::server {
namespace {

class EngineBackend final : public GradientBackend {
 public:
  explicit EngineBackend(std::unique_ptr<linear_logp::Engine> engine) : engine_(std::move(engine)) {}

  absl::StatusOr<linear_logp::Support> Supports(const linear_logp::Problem& problem,
                                                const linear_logp::Options& options) const override {
    return engine_->Supports(problem, options);
  }
  absl::StatusOr<std::int64_t> EstimateBytes(const linear_logp::Problem& problem, const linear_logp::Options& options,
                                             linear_logp::Want want) const override {
    return engine_->EstimateBytes(problem, options, want);
  }
  absl::StatusOr<linear_logp::Outputs> Forward(const linear_logp::Problem& problem, const linear_logp::Options& options,
                                               const linear_logp::Inputs& inputs,
                                               const linear_logp::ContinueCheck& check) override {
    return engine_->Forward(problem, options, inputs, check);
  }
  absl::StatusOr<linear_logp::Outputs> Gradient(const linear_logp::Problem& problem,
                                                const linear_logp::Options& options, linear_logp::Want want,
                                                const linear_logp::Inputs& inputs,
                                                const linear_logp::ContinueCheck& check) override {
    return engine_->Gradient(problem, options, want, inputs, check);
  }
  absl::StatusOr<std::unique_ptr<linear_logp::ChunkedGradient>> Begin(const linear_logp::Problem& problem,
                                                                      const linear_logp::Options& options,
                                                                      linear_logp::Want want,
                                                                      const linear_logp::Inputs& inputs) override {
    return engine_->Begin(problem, options, want, inputs);
  }
  absl::StatusOr<linear_logp::Outputs> AddChunk(linear_logp::ChunkedGradient* gradient,
                                                const std::byte* hidden) override {
    return engine_->AddChunk(gradient, hidden);
  }
  absl::StatusOr<linear_logp::Outputs> Finish(linear_logp::ChunkedGradient* gradient) override {
    return engine_->Finish(gradient);
  }
  absl::StatusOr<std::unique_ptr<linear_logp::SessionTensors>> OpenSession(const linear_logp::Problem& problem,
                                                                           const linear_logp::Inputs& inputs) override {
    return engine_->OpenSession(problem, inputs);
  }
  absl::StatusOr<linear_logp::Outputs> AddToSession(linear_logp::SessionTensors* session,
                                                    const linear_logp::Problem& problem,
                                                    const linear_logp::Options& options, linear_logp::Want want,
                                                    const linear_logp::Inputs& inputs,
                                                    const linear_logp::ContinueCheck& check) override {
    return engine_->AddToSession(session, problem, options, want, inputs, check);
  }
  absl::StatusOr<std::unique_ptr<linear_logp::ChunkedGradient>> BeginInSession(
      const linear_logp::SessionTensors& session, const linear_logp::Problem& problem,
      const linear_logp::Options& options, linear_logp::Want want, const linear_logp::Inputs& inputs) override {
    return engine_->BeginInSession(session, problem, options, want, inputs);
  }
  absl::StatusOr<linear_logp::Outputs> FinishInSession(linear_logp::ChunkedGradient* gradient,
                                                       linear_logp::SessionTensors* session) override {
    return engine_->FinishInSession(gradient, session);
  }
  absl::Status ReadSession(const linear_logp::SessionTensors& session, std::byte* weight, std::byte* bias) override {
    return engine_->ReadSession(session, weight, bias);
  }
  absl::Status ZeroSession(linear_logp::SessionTensors* session) override { return engine_->ZeroSession(session); }
  absl::StatusOr<std::int64_t> FreeBytes() const override { return engine_->FreeBytes(); }
  void ReleaseCache() override { engine_->ReleaseCache(); }
  bool Healthy() const override { return engine_->Healthy(); }

 private:
  const std::unique_ptr<linear_logp::Engine> engine_;
};

}  // namespace

BackendFactory EngineBackendFactory(linear_logp::Device device, int cpu_threads) {
  return [device, cpu_threads]() -> absl::StatusOr<std::unique_ptr<GradientBackend>> {
    absl::StatusOr<std::unique_ptr<linear_logp::Engine>> engine = linear_logp::Engine::Create(device, cpu_threads);
    if (!engine.ok()) return engine.status();
    return std::make_unique<EngineBackend>(*std::move(engine));
  };
}

}  // namespace keval::server
