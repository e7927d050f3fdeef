// The operator on one device, as the executor sees it: the seam behind which LibTorch lives.
#ifndef KEVAL_SERVER_GRADIENT_BACKEND_H_
#define KEVAL_SERVER_GRADIENT_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/linear_logp/engine.h"
#include "core/linear_logp/problem.h"

namespace keval::server {

// Contracts and errors are those of linear_logp::Engine. Made, called and destroyed by one thread.
class GradientBackend {
 public:
  virtual ~GradientBackend() = default;
  virtual absl::StatusOr<linear_logp::Support> Supports(const linear_logp::Problem& problem,
                                                        const linear_logp::Options& options) const = 0;
  virtual absl::StatusOr<std::int64_t> EstimateBytes(const linear_logp::Problem& problem,
                                                     const linear_logp::Options& options,
                                                     linear_logp::Want want) const = 0;
  virtual absl::StatusOr<linear_logp::Outputs> Forward(const linear_logp::Problem& problem,
                                                       const linear_logp::Options& options,
                                                       const linear_logp::Inputs& inputs,
                                                       const linear_logp::ContinueCheck& check) = 0;
  virtual absl::StatusOr<linear_logp::Outputs> Gradient(const linear_logp::Problem& problem,
                                                        const linear_logp::Options& options, linear_logp::Want want,
                                                        const linear_logp::Inputs& inputs,
                                                        const linear_logp::ContinueCheck& check) = 0;
  virtual absl::StatusOr<std::unique_ptr<linear_logp::ChunkedGradient>> Begin(const linear_logp::Problem& problem,
                                                                              const linear_logp::Options& options,
                                                                              linear_logp::Want want,
                                                                              const linear_logp::Inputs& inputs) = 0;
  virtual absl::StatusOr<linear_logp::Outputs> AddChunk(linear_logp::ChunkedGradient* gradient,
                                                        const std::byte* hidden) = 0;
  virtual absl::StatusOr<linear_logp::Outputs> Finish(linear_logp::ChunkedGradient* gradient) = 0;
  virtual absl::StatusOr<std::unique_ptr<linear_logp::SessionTensors>> OpenSession(
      const linear_logp::Problem& problem, const linear_logp::Inputs& inputs) = 0;
  virtual absl::StatusOr<linear_logp::Outputs> AddToSession(linear_logp::SessionTensors* session,
                                                            const linear_logp::Problem& problem,
                                                            const linear_logp::Options& options, linear_logp::Want want,
                                                            const linear_logp::Inputs& inputs,
                                                            const linear_logp::ContinueCheck& check) = 0;
  virtual absl::StatusOr<std::unique_ptr<linear_logp::ChunkedGradient>> BeginInSession(
      const linear_logp::SessionTensors& session, const linear_logp::Problem& problem,
      const linear_logp::Options& options, linear_logp::Want want, const linear_logp::Inputs& inputs) = 0;
  virtual absl::StatusOr<linear_logp::Outputs> FinishInSession(linear_logp::ChunkedGradient* gradient,
                                                               linear_logp::SessionTensors* session) = 0;
  virtual absl::Status ReadSession(const linear_logp::SessionTensors& session, std::byte* weight, std::byte* bias) = 0;
  virtual absl::Status ZeroSession(linear_logp::SessionTensors* session) = 0;
  // Bytes that a call could get on the device now. FAILED_PRECONDITION where the device can't be asked, ABORTED where
  // it is lost.
  virtual absl::StatusOr<std::int64_t> FreeBytes() const = 0;
  // Gives what the allocator keeps for later calls back to the device, for other processes to use.
  virtual void ReleaseCache() = 0;
  // False after a sticky device error: the device is lost to this process.
  virtual bool Healthy() const = 0;
};

using BackendFactory = std::function<absl::StatusOr<std::unique_ptr<GradientBackend>>()>;

}  // namespace keval::server

#endif  // KEVAL_SERVER_GRADIENT_BACKEND_H_
