#include "server/gradient_pipeline.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/memory/memory.h"
#include "base/field_error.h"
#include "server/session_batch.h"

namespace keval::server {
namespace {

// One being filled, one being computed on, one between.
constexpr std::size_t kBuffers = 3;
// Results that wait to be sent; one more is being sent, one being computed.
constexpr std::size_t kWaitingResults = 1;
constexpr std::chrono::milliseconds kQueueRetry{5};

std::int64_t RowBytes(const GradientCall& request) {
  return request.problem.hidden_size * DTypeSize(request.problem.dtype);
}

std::int64_t ChunkBytes(const GradientCall& request, const linear_logp::ChunkPlan& plan) {
  return plan.chunk_tokens * RowBytes(request);  // At most all of hidden, whose bytes fit.
}

std::size_t NumBuffers(const linear_logp::ChunkPlan& plan) {
  return static_cast<std::size_t>(std::min<std::int64_t>(kBuffers, plan.chunks));
}

absl::StatusOr<std::unique_ptr<linear_logp::ChunkedGradient>> BeginOn(GradientBackend& backend,
                                                                      const GradientCall& request,
                                                                      v1::SessionBatchResult* batch) {
  if (request.session != nullptr) return BeginBatch(backend, request, batch);
  return backend.Begin(request.problem, request.options, request.want, request.inputs);
}

absl::StatusOr<linear_logp::Outputs> FinishOn(GradientBackend& backend, const GradientCall& request,
                                              linear_logp::ChunkedGradient* gradient,
                                              const linear_logp::ContinueCheck& check, v1::SessionBatchResult* batch) {
  if (request.session != nullptr) return FinishBatch(backend, request, gradient, check, batch);
  return backend.Finish(gradient);
}

}  // namespace

std::int64_t GradientPipeline::MemoryBytes(const GradientCall& request, const linear_logp::ChunkPlan& plan,
                                           bool interleave) {
  const std::int64_t chunk = ChunkBytes(request, plan);
  std::int64_t bytes = 0;
  auto chunks = static_cast<std::int64_t>(NumBuffers(plan));
  // A chunk's results are at most twice its hidden (gradients in float32 of 16-bit operands), and logp.
  if (interleave) chunks += 2 * std::min<std::int64_t>(kWaitingResults + 2, plan.chunks);
  if (__builtin_mul_overflow(chunk, chunks, &bytes)) return INT64_MAX;
  return bytes;
}

absl::StatusOr<std::unique_ptr<GradientPipeline>> GradientPipeline::Create(
    const CallContext& call, const GradientCall& request, const linear_logp::ChunkPlan& plan, bool interleave,
    GradientSender* sender, const std::shared_ptr<HostMemoryPool>& memory) {
  auto pipeline = absl::WrapUnique(new GradientPipeline(call, request, plan, interleave, sender));
  for (std::size_t i = 0; i < NumBuffers(plan); ++i) {
    auto buffer = HostBuffer::Allocate(memory, ChunkBytes(request, plan), {});
    if (!buffer.ok()) return buffer.status();
    pipeline->buffers_.push_back(*std::move(buffer));
    pipeline->free_.Push(i);
  }
  return pipeline;
}

GradientPipeline::GradientPipeline(const CallContext& call, const GradientCall& request,
                                   const linear_logp::ChunkPlan& plan, bool interleave, GradientSender* sender)
    : call_(call),
      request_(request),
      plan_(plan),
      interleave_(interleave),
      sender_(sender),
      row_bytes_(RowBytes(request)),
      free_(kBuffers),
      ready_(kBuffers),
      // Without interleaving everything waits for the end; its memory was counted.
      results_(interleave ? kWaitingResults : static_cast<std::size_t>(plan.chunks) + 1) {}

GradientPipeline::~GradientPipeline() {
  Fail(absl::CancelledError("the call has ended"));
  if (computing_.joinable()) computing_.join();
  if (sending_.joinable()) sending_.join();
}

void GradientPipeline::Start() {
  started_ = true;
  computing_ = std::thread([this] { Compute(); });
  if (interleave_) sending_ = std::thread([this] { SendResults(); });
}

void GradientPipeline::Fail(absl::Status status) {
  {
    MutexLock lock(&mutex_);
    if (status_.ok()) status_ = std::move(status);
  }
  free_.Abort();
  ready_.Abort();
  results_.Abort();
}

absl::Status GradientPipeline::status() const {
  MutexLock lock(&mutex_);
  return status_;
}

absl::Status GradientPipeline::TakeHidden(absl::string_view piece) {
  if (!started_) Start();
  while (!piece.empty()) {
    if (filled_bytes_ < 0) {
      const std::optional<std::size_t> buffer = free_.Pop();
      if (!buffer) return status();
      filling_ = *buffer;
      filled_bytes_ = 0;
      ++chunks_begun_;
    }
    const std::int64_t tokens =
        std::min(plan_.chunk_tokens, request_.problem.num_tokens - (chunks_begun_ - 1) * plan_.chunk_tokens);
    const std::int64_t size = std::min(tokens * row_bytes_ - filled_bytes_, std::ssize(piece));
    std::memcpy(buffers_[filling_]->data() + filled_bytes_, piece.data(), static_cast<std::size_t>(size));
    piece.remove_prefix(static_cast<std::size_t>(size));
    filled_bytes_ += size;
    if (filled_bytes_ < tokens * row_bytes_) continue;
    filled_bytes_ = -1;
    if (!ready_.Push(filling_)) return status();
  }
  return absl::OkStatus();
}

absl::Status GradientPipeline::OnExecutor(bool admitted, Executor::Work work) {
  const linear_logp::ContinueCheck check = [this] {
    absl::Status ended = status();
    return ended.ok() ? call_.check() : ended;
  };
  while (true) {
    const absl::StatusOr<Executor::Timing> timing =
        request_.device->executor->Run(check, Executor::Needs::kDevice, work);
    if (timing.ok()) {
      timing_.queue_ns += timing->queue_ns;
      timing_.compute_ns += timing->compute_ns;
      return absl::OkStatus();
    }
    const bool queue_full = absl::IsResourceExhausted(timing.status()) && GetRetryDelayMs(timing.status()).has_value();
    if (!queue_full || !admitted) return timing.status();
    if (absl::Status ended = check(); !ended.ok()) return ended;
    std::this_thread::sleep_for(kQueueRetry);
  }
}

void GradientPipeline::Compute() {
  const absl::Status status = ComputeAll();
  if (status.ok()) {
    results_.Close();
  } else {
    Fail(status);
  }
}

absl::Status GradientPipeline::ComputeAll() {
  std::unique_ptr<linear_logp::ChunkedGradient> gradient;
  v1::SessionBatchResult batch;
  // The device's memory is the executor's business, also when it is given back.
  const auto end = [&] {
    static_cast<void>(request_.device->executor->Run([] { return absl::OkStatus(); }, Executor::Needs::kNothing,
                                                     [&](GradientBackend&, const linear_logp::ContinueCheck&) {
                                                       gradient.reset();
                                                       return absl::OkStatus();
                                                     }));
  };
  absl::Status status = OnExecutor(
      /*admitted=*/false, [&](GradientBackend& backend, const linear_logp::ContinueCheck&) -> absl::Status {
        auto begun = BeginOn(backend, request_, &batch);
        if (!begun.ok()) return begun.status();
        gradient = *std::move(begun);
        return gradient != nullptr ? absl::OkStatus()
                                   : absl::InternalError("a variant takes no chunks that said it would");
      });
  for (std::int64_t chunk = 0; status.ok() && chunk <= plan_.chunks; ++chunk) {
    const bool last = chunk == plan_.chunks;
    std::optional<std::size_t> buffer;
    if (!last) {
      buffer = ready_.Pop();
      if (!buffer) break;  // Ended from outside.
    }
    Results results;
    results.last = last;
    status = OnExecutor(
        /*admitted=*/true, [&](GradientBackend& backend, const linear_logp::ContinueCheck& check) -> absl::Status {
          auto outputs = last ? FinishOn(backend, request_, gradient.get(), check, &batch)
                              : backend.AddChunk(gradient.get(), buffers_[*buffer]->data());
          if (!outputs.ok()) return outputs.status();
          results.outputs = *std::move(outputs);
          results.batch = batch;
          return absl::OkStatus();
        });
    if (status.ok() && buffer) free_.Push(*buffer);
    if (status.ok() && !results_.Push(std::move(results))) break;
  }
  end();
  return status;
}

void GradientPipeline::SendResults() {
  const absl::Status status = SendAll();
  if (!status.ok()) Fail(status);
}

absl::Status GradientPipeline::SendAll() {
  if (absl::Status status = sender_->Start(); !status.ok()) return status;
  std::vector<Results> kept;  // Without interleaving: grad_hidden comes after all of logp.
  while (std::optional<Results> results = results_.Pop()) {
    absl::Status status;
    if (!results->last) {
      status = sender_->Tensor(ResultTensor::kLogp, results->outputs.logp);
      if (results->outputs.grad_hidden.has_value()) {
        if (interleave_) {
          status.Update(sender_->Tensor(ResultTensor::kGradHidden, *results->outputs.grad_hidden));
        } else {
          kept.push_back(*std::move(results));
        }
      }
      if (!status.ok()) return status;
      continue;
    }
    for (const Results& chunk : kept) {
      status.Update(sender_->Tensor(ResultTensor::kGradHidden, *chunk.outputs.grad_hidden));
    }
    const linear_logp::Outputs& all = results->outputs;
    if (all.grad_weight.has_value()) status.Update(sender_->Tensor(ResultTensor::kGradWeight, *all.grad_weight));
    if (all.grad_bias.has_value()) status.Update(sender_->Tensor(ResultTensor::kGradBias, *all.grad_bias));
    if (!status.ok()) return status;
    return sender_->Done(all.dispatch, timing_, request_.session != nullptr ? &results->batch : nullptr);
  }
  return absl::CancelledError("the call has ended");  // Of no interest: the stage that ended it has said why.
}

absl::Status GradientPipeline::Finish() {
  ready_.Close();
  computing_.join();
  if (!interleave_ && status().ok()) SendResults();
  if (sending_.joinable()) sending_.join();
  return status();
}

}  // namespace keval::server
