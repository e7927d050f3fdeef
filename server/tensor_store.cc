#include "server/tensor_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "base/sha256.h"

namespace keval::server {

TensorStore::TensorStore(Options options, std::shared_ptr<HostMemoryPool> memory)
    : options_(std::move(options)),
      memory_(std::move(memory)),
      budget_("memory for stored tensors", options_.max_bytes) {}

absl::StatusOr<std::shared_ptr<HostBuffer>> TensorStore::Allocate(std::int64_t bytes) {
  DropExpired();
  absl::StatusOr<ByteBudget::Reservation> reservation = budget_.Reserve(bytes);
  if (!reservation.ok()) return reservation.status();
  return HostBuffer::Allocate(memory_, bytes, *std::move(reservation));
}

absl::Time TensorStore::LeaseEnd(absl::Duration lease) const {
  if (lease == absl::ZeroDuration()) lease = options_.default_lease;
  return options_.now() + std::min(lease, options_.max_lease);
}

StoredTensor TensorStore::Insert(absl::string_view principal, TensorSpec spec, std::shared_ptr<const HostBuffer> buffer,
                                 TensorDigests digests, absl::Duration lease) {
  StoredTensor tensor{absl::StrCat("tensors/", RandomHex128()), std::move(spec), std::move(buffer), std::move(digests),
                      LeaseEnd(lease)};
  MutexLock lock(&mutex_);
  entries_.emplace(tensor.handle, Entry{std::string(principal), tensor});
  return tensor;
}

std::vector<TensorStore::Entry> TensorStore::TakeExpired() {
  const absl::Time now = options_.now();
  std::vector<Entry> expired;
  for (auto it = entries_.begin(); it != entries_.end();) {
    if (it->second.tensor.expires <= now) {
      expired.push_back(std::move(it->second));
      it = entries_.erase(it);
    } else {
      ++it;
    }
  }
  return expired;
}

void TensorStore::DropExpired() {
  std::vector<Entry> expired;  // Freed after the lock: unmapping a large tensor takes a while.
  MutexLock lock(&mutex_);
  expired = TakeExpired();
}

absl::StatusOr<TensorStore::Entries::iterator> TensorStore::FindEntry(absl::string_view principal,
                                                                      absl::string_view handle) {
  const auto it = entries_.find(std::string(handle));
  if (it == entries_.end() || it->second.principal != principal || it->second.tensor.expires <= options_.now()) {
    // One text for all three, so that a handle's existence isn't told to strangers.
    return WithField(absl::NotFoundError("handle: no such tensor"), {"handle", std::string(handle.substr(0, 64)), ""});
  }
  return it;
}

absl::StatusOr<StoredTensor> TensorStore::Find(absl::string_view principal, absl::string_view handle) {
  DropExpired();
  MutexLock lock(&mutex_);
  absl::StatusOr<Entries::iterator> it = FindEntry(principal, handle);
  if (!it.ok()) return it.status();
  return (*it)->second.tensor;
}

absl::StatusOr<StoredTensor> TensorStore::Touch(absl::string_view principal, absl::string_view handle,
                                                absl::Duration lease) {
  DropExpired();
  MutexLock lock(&mutex_);
  absl::StatusOr<Entries::iterator> it = FindEntry(principal, handle);
  if (!it.ok()) return it.status();
  StoredTensor& tensor = (*it)->second.tensor;
  tensor.expires = std::max(tensor.expires, LeaseEnd(lease));
  return tensor;
}

absl::Status TensorStore::Delete(absl::string_view principal, absl::string_view handle) {
  DropExpired();
  Entry deleted;  // Freed after the lock.
  MutexLock lock(&mutex_);
  absl::StatusOr<Entries::iterator> it = FindEntry(principal, handle);
  if (!it.ok()) return it.status();
  deleted = std::move((*it)->second);
  entries_.erase(*it);
  return absl::OkStatus();
}

std::vector<StoredTensor> TensorStore::List(absl::string_view principal, absl::string_view after, int limit) {
  DropExpired();
  std::vector<StoredTensor> found;
  MutexLock lock(&mutex_);
  for (auto it = entries_.upper_bound(std::string(after));
       it != entries_.end() && found.size() < static_cast<std::size_t>(limit); ++it) {
    if (it->second.principal == principal) found.push_back(it->second.tensor);
  }
  return found;
}

}  // namespace keval::server
