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

// Every tensor belongs to a principal; to any other caller it does not exist. Thread-safe; must outlive its tensors.
class TensorStore {
 public:
  struct Options {
    std::int64_t max_bytes = 0;
    absl::Duration default_lease = absl::Hours(1);
    absl::Duration max_lease = absl::Hours(24);
    std::function<absl::Time()> now = [] { return absl::Now(); };
  };
  TensorStore(Options options, std::shared_ptr<HostMemoryPool> memory);

  // Memory for a tensor of `bytes` bytes, counted from now on. RESOURCE_EXHAUSTED naming bytes needed and free.
  absl::StatusOr<std::shared_ptr<HostBuffer>> Allocate(std::int64_t bytes);

  // Takes a filled buffer of Allocate. `lease` zero: the default; more than the maximum is cut to it.
  StoredTensor Insert(absl::string_view principal, TensorSpec spec, std::shared_ptr<const HostBuffer> buffer,
                      TensorDigests digests, absl::Duration lease);

  // NOT_FOUND, in the same words, for a handle that is unknown, expired or another principal's.
  absl::StatusOr<StoredTensor> Find(absl::string_view principal, absl::string_view handle);
  // The lease from now on, never shorter than it was.
  absl::StatusOr<StoredTensor> Touch(absl::string_view principal, absl::string_view handle, absl::Duration lease);
  absl::Status Delete(absl::string_view principal, absl::string_view handle);
  // The principal's tensors with a handle after `after`, ascending, at most `limit`.
  std::vector<StoredTensor> List(absl::string_view principal, absl::string_view after, int limit);

  // Drops what has expired. Every other call does this too; a server calls it from time to time, so that memory comes
  // back without one.
  void DropExpired();

  std::int64_t used_bytes() const { return budget_.used(); }
  std::int64_t max_bytes() const { return budget_.limit(); }
  const Options& options() const { return options_; }

 private:
  struct Entry {
    std::string principal;
    StoredTensor tensor;
  };
  using Entries = std::map<std::string, Entry, std::less<>>;

  // What was dropped, for the caller to destroy outside the lock.
  std::vector<Entry> TakeExpired() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Entries::iterator> FindEntry(absl::string_view principal, absl::string_view handle)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Time LeaseEnd(absl::Duration lease) const;

  const Options options_;
  const std::shared_ptr<HostMemoryPool> memory_;
  ByteBudget budget_;
  Mutex mutex_;
  Entries entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_TENSOR_STORE_H_
