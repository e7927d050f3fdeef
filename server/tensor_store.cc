#include "server/tensor_store.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "base/sha256.h"

namespace keval::server {

TensorStore::TensorStore(Options options, std::shared_ptr<HostMemoryPool> memory)
    : options_(std::move(options)),
      memory_(std::move(memory)),
      budget_("memory for stored tensors", options_.max_bytes) {}

std::shared_ptr<ByteBudget> TensorStore::BudgetOf(absl::string_view principal) {
  MutexLock lock(&mutex_);
  // Shares of those who have gone; an upload that begins holds its own.
  for (auto it = shares_.begin(); it != shares_.end();) {
    const bool idle = it->second.use_count() == 1 && it->second->used() == 0;
    it = idle ? shares_.erase(it) : std::next(it);
  }
  std::shared_ptr<ByteBudget>& share = shares_[std::string(principal)];
  if (share == nullptr) {
    share = std::make_shared<ByteBudget>("the caller's share of memory for stored tensors",
                                         options_.max_bytes_per_principal);
  }
  return share;
}

bool TensorStore::EvictOne(absl::string_view principal) {
  Entry evicted;  // Freed after the lock.
  MutexLock lock(&mutex_);
  auto oldest = entries_.end();
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    const Entry& entry = it->second;
    if (!Expired(entry) || entry.tensor.buffer.use_count() > 1) continue;
    if (!principal.empty() && entry.principal != principal) continue;
    if (oldest == entries_.end() || entry.last_used < oldest->second.last_used) oldest = it;
  }
  if (oldest == entries_.end()) return false;
  evicted = std::move(oldest->second);
  entries_.erase(oldest);
  return true;
}

absl::StatusOr<ByteBudget::Reservation> TensorStore::ReserveEvicting(ByteBudget* budget, std::int64_t bytes,
                                                                     absl::string_view principal) {
  absl::StatusOr<ByteBudget::Reservation> reservation = budget->Reserve(bytes);
  while (!reservation.ok() && bytes <= budget->limit() && EvictOne(principal)) reservation = budget->Reserve(bytes);
  return reservation;
}

absl::StatusOr<std::shared_ptr<HostBuffer>> TensorStore::Allocate(absl::string_view principal, std::int64_t bytes) {
  DropExpired();
  {
    Entry evicted;
    MutexLock lock(&mutex_);
    if (absl::Status status = MakeRoomForOne(principal, &evicted); !status.ok()) return status;
  }
  absl::StatusOr<std::vector<ByteBudget::Reservation>> reservations = Reserve(principal, bytes);
  if (!reservations.ok()) return reservations.status();
  return HostBuffer::Allocate(memory_, bytes, *std::move(reservations));
}

absl::StatusOr<std::vector<ByteBudget::Reservation>> TensorStore::Reserve(absl::string_view principal,
                                                                          std::int64_t bytes) {
  const std::shared_ptr<ByteBudget> share = BudgetOf(principal);
  absl::StatusOr<ByteBudget::Reservation> own = ReserveEvicting(share.get(), bytes, principal);
  if (!own.ok()) return own.status();
  absl::StatusOr<ByteBudget::Reservation> all = ReserveEvicting(&budget_, bytes, "");
  if (!all.ok()) return all.status();
  std::vector<ByteBudget::Reservation> reservations;
  reservations.push_back(*std::move(own));
  reservations.push_back(*std::move(all));
  return reservations;
}

absl::Time TensorStore::LeaseEnd(absl::Duration lease) const {
  if (lease == absl::ZeroDuration()) lease = options_.default_lease;
  return options_.now() + std::min(lease, options_.max_lease);
}

StoredTensor TensorStore::Add(absl::string_view principal, TensorSpec spec, std::shared_ptr<const HostBuffer> buffer,
                              TensorDigests digests, absl::Duration lease) {
  StoredTensor tensor{absl::StrCat("tensors/", RandomHex128()), std::move(spec), std::move(buffer), std::move(digests),
                      LeaseEnd(lease)};
  entries_.emplace(tensor.handle, Entry{std::string(principal), tensor, options_.now()});
  return tensor;
}

absl::Status TensorStore::MakeRoomForOne(absl::string_view principal, Entry* evicted) {
  std::int64_t count = 0;
  auto oldest = entries_.end();
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    const Entry& entry = it->second;
    if (entry.principal != principal) continue;
    ++count;
    if (Expired(entry) && (oldest == entries_.end() || entry.last_used < oldest->second.last_used)) oldest = it;
  }
  if (count < options_.max_tensors_per_principal) return absl::OkStatus();
  if (oldest == entries_.end()) {
    const std::string limit = absl::StrCat("at most ", options_.max_tensors_per_principal, " of one caller");
    return WithField(absl::ResourceExhaustedError(absl::StrCat("tensors: ", count, " are stored already, ", limit)),
                     {"tensors", absl::StrCat(count + 1), limit});
  }
  *evicted = std::move(oldest->second);
  entries_.erase(oldest);
  return absl::OkStatus();
}

absl::StatusOr<StoredTensor> TensorStore::Insert(absl::string_view principal, TensorSpec spec,
                                                 std::shared_ptr<const HostBuffer> buffer, TensorDigests digests,
                                                 absl::Duration lease) {
  Entry evicted;  // Freed after the lock.
  MutexLock lock(&mutex_);
  if (absl::Status status = MakeRoomForOne(principal, &evicted); !status.ok()) return status;
  return Add(principal, std::move(spec), std::move(buffer), std::move(digests), lease);
}

absl::StatusOr<StoredTensor> TensorStore::Reuse(absl::string_view principal, const TensorSpec& spec,
                                                absl::string_view sha256, absl::Duration lease) {
  DropExpired();
  Entry expired;  // Its handle is of no use to anybody once its bytes have another.
  Entry evicted;
  MutexLock lock(&mutex_);
  const auto it = std::find_if(entries_.begin(), entries_.end(), [&](const Entries::value_type& entry) {
    return entry.second.principal == principal && entry.second.tensor.digests.sha256 == sha256 &&
           entry.second.tensor.spec == spec;
  });
  if (it == entries_.end()) {
    return WithField(absl::NotFoundError("sha256: no such tensor"), {"sha256", absl::BytesToHexString(sha256), ""});
  }
  const StoredTensor found = it->second.tensor;
  if (Expired(it->second)) {
    expired = std::move(it->second);
    entries_.erase(it);
  }
  if (absl::Status status = MakeRoomForOne(principal, &evicted); !status.ok()) return status;
  return Add(principal, found.spec, found.buffer, found.digests, lease);
}

void TensorStore::DropExpired() {
  std::vector<Entry> dropped;  // Freed after the lock: unmapping a large tensor takes a while.
  MutexLock lock(&mutex_);
  const absl::Time limit = options_.now() - options_.keep_expired;
  for (auto it = entries_.begin(); it != entries_.end();) {
    if (it->second.tensor.expires <= limit) {
      dropped.push_back(std::move(it->second));
      it = entries_.erase(it);
    } else {
      ++it;
    }
  }
}

absl::StatusOr<TensorStore::Entries::iterator> TensorStore::FindEntry(absl::string_view principal,
                                                                      absl::string_view handle) {
  const auto it = entries_.find(std::string(handle));
  if (it == entries_.end() || it->second.principal != principal || Expired(it->second)) {
    // One text for all three, so that a handle's existence isn't told to strangers.
    return WithField(absl::NotFoundError("handle: no such tensor"), {"handle", std::string(handle.substr(0, 64)), ""});
  }
  it->second.last_used = options_.now();
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
    if (it->second.principal == principal && !Expired(it->second)) found.push_back(it->second.tensor);
  }
  return found;
}

TensorStore::Usage TensorStore::usage() {
  Usage usage;
  usage.used_bytes = budget_.used();
  MutexLock lock(&mutex_);
  for (const auto& [handle, entry] : entries_) {
    if (!Expired(entry)) {
      ++usage.tensors;
    } else if (entry.tensor.buffer.use_count() == 1) {
      usage.expired_bytes += entry.tensor.buffer->size();
    }
  }
  return usage;
}

}  // namespace keval::server
