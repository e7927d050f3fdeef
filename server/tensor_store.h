// Tensors that stay on the server between calls.
#ifndef KEVAL_SERVER_TENSOR_STORE_H_
#define KEVAL_SERVER_TENSOR_STORE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/shape.h"
#include "server/byte_budget.h"
#include "server/host_buffer.h"

namespace keval::server {

// What is known of a tensor's bytes; either may be empty.
struct TensorDigests {
  std::string sha256;  // 32 bytes.
  std::string xxh3;    // 16 bytes, canonical.
};

// A copy shares the bytes: it stays readable after the tensor was deleted, and its bytes are counted until then.
struct StoredTensor {
  std::string handle;  // "tensors/" and 32 hexadecimal digits.
  TensorSpec spec;
  std::shared_ptr<const HostBuffer> buffer;
  TensorDigests digests;
  absl::Time expires;
};

// Every tensor belongs to a principal; to any other caller it does not exist. A handle is valid for as long as its
// lease runs; after that its bytes stay, for Reuse, until room is needed (the least recently used go first) or
// `keep_expired` has passed. Handles may share bytes, which count once. Thread-safe; must outlive its tensors.
class TensorStore {
 public:
  struct Options {
    std::int64_t max_bytes = 0;
    std::int64_t max_bytes_per_principal = INT64_MAX;
    std::int64_t max_tensors_per_principal = INT64_MAX;  // Expired ones that are still kept count too, and give way.
    absl::Duration default_lease = absl::Hours(1);
    absl::Duration max_lease = absl::Hours(24);
    absl::Duration keep_expired = absl::Minutes(10);
    std::function<absl::Time()> now = [] { return absl::Now(); };
  };
  TensorStore(Options options, std::shared_ptr<HostMemoryPool> memory);

  // Memory for a tensor of `bytes` bytes, counted from now on. RESOURCE_EXHAUSTED naming bytes needed and free, of the
  // store or of the principal's share, or the number of the principal's tensors (field "tensors"); expired tensors have
  // given way first.
  absl::StatusOr<std::shared_ptr<HostBuffer>> Allocate(absl::string_view principal, std::int64_t bytes);

  // Counts `bytes` bytes that the principal has on the server, in its share first, until the last of the reservations
  // goes: a gradient session's. RESOURCE_EXHAUSTED as Allocate, but for the number of tensors.
  absl::StatusOr<std::vector<ByteBudget::Reservation>> Reserve(absl::string_view principal, std::int64_t bytes);

  // Takes a filled buffer of Allocate. `lease` zero: the default; more than the maximum is cut to it.
  // RESOURCE_EXHAUSTED (field "tensors") where the principal's others have become too many since.
  absl::StatusOr<StoredTensor> Insert(absl::string_view principal, TensorSpec spec,
                                      std::shared_ptr<const HostBuffer> buffer, TensorDigests digests,
                                      absl::Duration lease);

  // A new handle on the bytes of a tensor of the principal's that has this spec and SHA-256, its own lease expired or
  // not. NOT_FOUND; RESOURCE_EXHAUSTED as Insert.
  absl::StatusOr<StoredTensor> Reuse(absl::string_view principal, const TensorSpec& spec, absl::string_view sha256,
                                     absl::Duration lease);

  // NOT_FOUND, in the same words, for a handle that is unknown, expired or another principal's.
  absl::StatusOr<StoredTensor> Find(absl::string_view principal, absl::string_view handle);
  // The lease from now on, never shorter than it was.
  absl::StatusOr<StoredTensor> Touch(absl::string_view principal, absl::string_view handle, absl::Duration lease);
  absl::Status Delete(absl::string_view principal, absl::string_view handle);
  // The principal's tensors with a handle after `after`, ascending, at most `limit`.
  std::vector<StoredTensor> List(absl::string_view principal, absl::string_view after, int limit);

  // Drops what expired `keep_expired` ago. Every other call does this too; a server calls it from time to time, so that
  // memory comes back without one.
  void DropExpired();

  struct Usage {
    std::int64_t used_bytes = 0;     // Allocated: stored, being uploaded, deleted but still being read; or reserved.
    std::int64_t expired_bytes = 0;  // Of them, what gives way when room is needed.
    std::int64_t tensors = 0;        // With a lease that runs.
  };
  Usage usage();
  std::int64_t used_bytes() const { return budget_.used(); }
  std::int64_t max_bytes() const { return budget_.limit(); }
  const Options& options() const { return options_; }

 private:
  struct Entry {
    std::string principal;
    StoredTensor tensor;
    absl::Time last_used;
  };
  using Entries = std::map<std::string, Entry, std::less<>>;

  bool Expired(const Entry& entry) const { return entry.tensor.expires <= options_.now(); }
  // RESOURCE_EXHAUSTED where the principal may have no further tensor. An expired one that gave way comes back in
  // `evicted`, for the caller to destroy outside the lock.
  absl::Status MakeRoomForOne(absl::string_view principal, Entry* evicted) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  StoredTensor Add(absl::string_view principal, TensorSpec spec, std::shared_ptr<const HostBuffer> buffer,
                   TensorDigests digests, absl::Duration lease) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The least recently used expired tensor whose bytes nobody else holds, for the caller to destroy outside the lock;
  // of `principal` alone where it isn't empty. False where there is none.
  bool EvictOne(absl::string_view principal);
  absl::StatusOr<ByteBudget::Reservation> ReserveEvicting(ByteBudget* budget, std::int64_t bytes,
                                                          absl::string_view principal);
  std::shared_ptr<ByteBudget> BudgetOf(absl::string_view principal);
  absl::StatusOr<Entries::iterator> FindEntry(absl::string_view principal, absl::string_view handle)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Time LeaseEnd(absl::Duration lease) const;

  const Options options_;
  const std::shared_ptr<HostMemoryPool> memory_;
  ByteBudget budget_;
  Mutex mutex_;
  Entries entries_ ABSL_GUARDED_BY(mutex_);
  // Of principals who have bytes here, or are about to.
  std::map<std::string, std::shared_ptr<ByteBudget>, std::less<>> shares_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_TENSOR_STORE_H_
