// A streamed gradient computed while its hidden arrives, and sent back meanwhile.
#ifndef KEVAL_SERVER_GRADIENT_PIPELINE_H_
#define KEVAL_SERVER_GRADIENT_PIPELINE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "core/linear_logp/chunk_plan.h"
#include "core/linear_logp/engine.h"
#include "server/bounded_queue.h"
#include "server/call_context.h"
#include "server/gradient_request.h"
#include "server/gradient_sender.h"
#include "server/host_buffer.h"

namespace keval::server {

// Three stages, each in a thread of its own, with a few chunks between them:
//
//   TakeHidden (the call's thread) -> chunks of hidden -> compute (the device's executor, a chunk at a time, other
//   requests in between) -> results -> send
//
// A stage that is ahead waits for the next one: a client that doesn't read stops the sending, then the computing, then
// the reading, and so its own sending by flow control; the device is not held meanwhile. Memory is that of the chunks
// between the stages, however many tokens there are; `MemoryBytes` says how much.
//
// Owner: one call. `call`, `request` (all operands but hidden must be in when hidden comes) and `sender` must outlive
// it. The destructor ends everything and waits for the threads.
class GradientPipeline {
 public:
  // Of the chunks between the stages. `interleave` false: results wait for Finish, so they are counted whole elsewhere.
  static std::int64_t MemoryBytes(const GradientCall& request, const linear_logp::ChunkPlan& plan, bool interleave);

  // RESOURCE_EXHAUSTED where the allocator refuses. `interleave`: results are sent as they come; otherwise nothing is
  // sent before Finish, and then tensor by tensor.
  static absl::StatusOr<std::unique_ptr<GradientPipeline>> Create(const CallContext& call, const GradientCall& request,
                                                                  const linear_logp::ChunkPlan& plan, bool interleave,
                                                                  GradientSender* sender,
                                                                  const std::shared_ptr<HostMemoryPool>& memory);
  ~GradientPipeline();
  GradientPipeline(const GradientPipeline&) = delete;
  GradientPipeline& operator=(const GradientPipeline&) = delete;

  // The next bytes of hidden; waits while the stages behind are full. Their error, where they have failed. The first
  // call starts the computing.
  absl::Status TakeHidden(absl::string_view piece);

  // After the last byte: waits until everything is computed and sent, `done` included.
  absl::Status Finish();

 private:
  // Results of one chunk, or, at the end, of all tokens.
  struct Results {
    linear_logp::Outputs outputs;
    v1::SessionBatchResult batch;  // Of the last, where there is a session.
    bool last = false;
  };

  GradientPipeline(const CallContext& call, const GradientCall& request, const linear_logp::ChunkPlan& plan,
                   bool interleave, GradientSender* sender);
  void Start();
  void Compute();
  absl::Status ComputeAll();
  void SendResults();
  absl::Status SendAll();
  // Runs `work` on the device's executor. `admitted`: a full queue is waited for, since the request as a whole was let
  // in before.
  absl::Status OnExecutor(bool admitted, Executor::Work work);
  // Keeps the first error and ends every stage.
  void Fail(absl::Status status);
  absl::Status status() const;

  const CallContext& call_;
  const GradientCall& request_;
  const linear_logp::ChunkPlan plan_;
  const bool interleave_;
  GradientSender* const sender_;
  const std::int64_t row_bytes_;
  std::vector<std::shared_ptr<HostBuffer>> buffers_;

  // The call's thread alone.
  bool started_ = false;
  std::size_t filling_ = 0;
  std::int64_t filled_bytes_ = -1;  // Of the buffer being filled; -1: there is none.
  std::int64_t chunks_begun_ = 0;

  // The computing thread alone, until it has ended.
  Executor::Timing timing_;

  BoundedQueue<std::size_t> free_;   // Buffers.
  BoundedQueue<std::size_t> ready_;  // Buffers with a chunk each.
  BoundedQueue<Results> results_;
  mutable Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::thread computing_;
  std::thread sending_;
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_GRADIENT_PIPELINE_H_
