#include "server/session_store.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "base/sha256.h"
#include "server/request_fields.h"

namespace keval::server {
namespace {

constexpr absl::string_view kPrefix = "sessions/";
constexpr std::size_t kProcessDigits = 16;
constexpr std::size_t kNameDigits = kProcessDigits + 32;

}  // namespace

bool SessionStore::IsName(absl::string_view text) { return IsHexName(text, kPrefix, kNameDigits); }

SessionStore::SessionStore(Options options)
    : options_(std::move(options)), process_(RandomHex128().substr(0, kProcessDigits)) {}

absl::Duration SessionStore::LeaseOf(absl::Duration asked) const {
  return std::min(asked == absl::ZeroDuration() ? options_.default_lease : asked, options_.max_lease);
}

absl::Status SessionStore::RoomForOne(absl::string_view principal) const {
  const std::int64_t count = std::count_if(entries_.begin(), entries_.end(), [&](const Entries::value_type& entry) {
    return entry.second.principal == principal;
  });
  if (count < options_.max_sessions_per_principal) return absl::OkStatus();
  const std::string limit = absl::StrCat("at most ", options_.max_sessions_per_principal, " of one caller");
  return WithField(absl::ResourceExhaustedError(absl::StrCat("sessions: ", count, " are open already, ", limit)),
                   {"sessions", absl::StrCat(count + 1), limit});
}

absl::Status SessionStore::CheckRoom(absl::string_view principal) {
  DropExpired();
  MutexLock lock(&mutex_);
  return RoomForOne(principal);
}

absl::StatusOr<StoredSession> SessionStore::Insert(absl::string_view principal,
                                                   std::shared_ptr<GradientSession> session, absl::Duration lease) {
  MutexLock lock(&mutex_);
  if (absl::Status status = RoomForOne(principal); !status.ok()) return status;
  StoredSession stored{absl::StrCat(kPrefix, process_, RandomHex128()), std::move(session), LeaseOf(lease), {}};
  stored.expires = options_.now() + stored.lease;
  entries_.emplace(stored.name, Entry{std::string(principal), stored});
  return stored;
}

absl::StatusOr<SessionStore::Entries::iterator> SessionStore::FindEntry(absl::string_view principal,
                                                                        absl::string_view name) {
  const auto it = entries_.find(std::string(name));
  if (it != entries_.end() && it->second.principal == principal && it->second.stored.expires > options_.now()) {
    return it;
  }
  if (IsName(name) && !absl::StartsWith(name.substr(kPrefix.size()), process_)) {
    return WithField(
        absl::NotFoundError("session: it is not of this server's process: the server has restarted since, or it was "
                            "another's; open a new session and send its micro-batches again"),
        {"session", std::string(name), ""});
  }
  return NoSuchSession(name);
}

absl::StatusOr<StoredSession> SessionStore::Stat(absl::string_view principal, absl::string_view name) {
  DropExpired();
  MutexLock lock(&mutex_);
  absl::StatusOr<Entries::iterator> it = FindEntry(principal, name);
  if (!it.ok()) return it.status();
  return (*it)->second.stored;
}

absl::StatusOr<std::shared_ptr<GradientSession>> SessionStore::Use(absl::string_view principal,
                                                                   absl::string_view name) {
  absl::StatusOr<StoredSession> stored = Touch(principal, name, absl::ZeroDuration());
  if (!stored.ok()) return stored.status();
  return stored->session;
}

absl::StatusOr<StoredSession> SessionStore::Touch(absl::string_view principal, absl::string_view name,
                                                  absl::Duration lease) {
  DropExpired();
  MutexLock lock(&mutex_);
  absl::StatusOr<Entries::iterator> it = FindEntry(principal, name);
  if (!it.ok()) return it.status();
  StoredSession& stored = (*it)->second.stored;
  if (lease > absl::ZeroDuration()) stored.lease = LeaseOf(lease);
  stored.expires = std::max(stored.expires, options_.now() + stored.lease);
  return stored;
}

void SessionStore::Renew(const GradientSession& session) {
  MutexLock lock(&mutex_);
  for (auto& [name, entry] : entries_) {
    if (entry.stored.session.get() != &session) continue;
    entry.stored.expires = std::max(entry.stored.expires, options_.now() + entry.stored.lease);
  }
}

absl::Status SessionStore::Delete(absl::string_view principal, absl::string_view name) {
  DropExpired();
  std::shared_ptr<GradientSession> deleted;
  {
    MutexLock lock(&mutex_);
    absl::StatusOr<Entries::iterator> it = FindEntry(principal, name);
    if (!it.ok()) return it.status();
    deleted = std::move((*it)->second.stored.session);
    entries_.erase(*it);
  }
  deleted->End();
  return absl::OkStatus();
}

std::vector<StoredSession> SessionStore::List(absl::string_view principal, absl::string_view after, int limit) {
  DropExpired();
  std::vector<StoredSession> found;
  MutexLock lock(&mutex_);
  for (auto it = entries_.upper_bound(std::string(after));
       it != entries_.end() && found.size() < static_cast<std::size_t>(limit); ++it) {
    if (it->second.principal == principal) found.push_back(it->second.stored);
  }
  return found;
}

void SessionStore::DropExpired() {
  std::vector<std::shared_ptr<GradientSession>> dropped;
  {
    MutexLock lock(&mutex_);
    const absl::Time now = options_.now();
    for (auto it = entries_.begin(); it != entries_.end();) {
      if (it->second.stored.expires <= now) {
        dropped.push_back(std::move(it->second.stored.session));
        it = entries_.erase(it);
      } else {
        ++it;
      }
    }
  }
  for (const std::shared_ptr<GradientSession>& session : dropped) session->End();
}

std::int64_t SessionStore::size() const {
  MutexLock lock(&mutex_);
  return static_cast<std::int64_t>(entries_.size());
}

}  // namespace keval::server
