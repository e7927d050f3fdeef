// One gradient session: weight and bias on a device, and the sums of their gradients over micro-batches.
#ifndef KEVAL_SERVER_GRADIENT_SESSION_H_
#define KEVAL_SERVER_GRADIENT_SESSION_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "base/shape.h"
#include "core/linear_logp/engine.h"
#include "keval/v1/linear_logp.pb.h"
#include "server/byte_budget.h"
#include "server/device_table.h"

namespace keval::server {

// Ids of micro-batches and of resets: INVALID_ARGUMENT naming `field` unless `id` is 16 bytes.
absl::Status CheckSessionId(absl::string_view field, absl::string_view id);

// One text for a session that never was, has ended, or is somebody else's.
absl::Status NoSuchSession(absl::string_view name);

// Owners: the store, and every call that uses it; the tensors go with the last of them, destroyed by the device's
// executor. Thread-safe. What changes the sums, and what is recorded of it here, is the business of work that runs on
// that executor's thread, one piece at a time: what such a piece has asked here stays true until it ends, but for End.
class GradientSession {
 public:
  static constexpr std::size_t kIdBytes = 16;  // Of a micro-batch's or a reset's.
  static constexpr std::size_t kRememberedBatches = 4096;
  static constexpr std::size_t kRememberedResets = 16;
  // More than the two take.
  static constexpr std::int64_t kRecordBytes = std::int64_t{256} << 10;

  struct Head {
    const ServedDevice* device = nullptr;
    TensorSpec weight;               // [V, D]
    std::optional<TensorSpec> bias;  // [V]
    DType SumDtype() const { return weight.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32; }
    TensorSpec SumOfWeight() const { return {SumDtype(), weight.shape}; }
    TensorSpec SumOfBias() const { return {SumDtype(), {weight.shape[0]}}; }  // REQUIRES bias.
  };
  struct Progress {
    std::int64_t sequence = 0;    // Micro-batches that were ever added.
    std::int64_t batches = 0;     // In the sums.
    std::int64_t num_tokens = 0;  // Of these.
  };

  // `reservations`: what the session's memory is counted by.
  GradientSession(Head head, std::unique_ptr<linear_logp::SessionTensors> tensors,
                  std::vector<ByteBudget::Reservation> reservations);
  ~GradientSession();
  GradientSession(const GradientSession&) = delete;
  GradientSession& operator=(const GradientSession&) = delete;

  const Head& head() const { return head_; }
  std::int64_t bytes() const { return bytes_; }
  // For the executor's thread alone.
  linear_logp::SessionTensors* tensors() const { return memory_->tensors.get(); }

  Progress progress() const;
  // The store has let go of it: no micro-batch is added any more.
  void End();
  bool ended() const;

  // Of ids, that CheckSessionId has found right is REQUIRED.
  // The place of the micro-batch of this id, where it is remembered.
  std::optional<std::int64_t> SequenceOf(absl::string_view batch_id) const;
  // After its gradients were added. Returns its place.
  std::int64_t RecordBatch(absl::string_view batch_id, std::int64_t num_tokens);

  // The answer to the Zero or resetting Fetch of this id, where it is remembered.
  std::optional<v1::FetchSessionResponse> AnswerOf(absl::string_view request_id) const;
  // After the sums were set to zero.
  void RecordReset(absl::string_view request_id, v1::FetchSessionResponse answer);

 private:
  using Id = std::array<char, kIdBytes>;
  struct Memory {
    std::vector<ByteBudget::Reservation> reservations;
    std::unique_ptr<linear_logp::SessionTensors> tensors;  // Goes before what it is counted by.
  };

  static Id ToId(absl::string_view text);

  const Head head_;
  const std::int64_t bytes_;
  std::shared_ptr<Memory> memory_;
  mutable Mutex mutex_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  Progress progress_ ABSL_GUARDED_BY(mutex_);
  // Oldest first; the last one's place is progress_.sequence.
  std::deque<Id> batch_ids_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::pair<Id, v1::FetchSessionResponse>> resets_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_GRADIENT_SESSION_H_
