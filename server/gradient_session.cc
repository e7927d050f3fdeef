#include "server/gradient_session.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "base/field_error.h"

namespace keval::server {
namespace {

// A caller's own share and the whole are counted by a reservation each, of the same bytes.
std::int64_t BytesOf(const std::vector<ByteBudget::Reservation>& reservations) {
  return reservations.empty() ? 0 : reservations.front().bytes();
}

}  // namespace

absl::Status CheckSessionId(absl::string_view field, absl::string_view id) {
  if (id.size() == GradientSession::kIdBytes) return absl::OkStatus();
  return InvalidField(field, absl::StrCat(id.size(), " bytes"), absl::StrCat(GradientSession::kIdBytes, " bytes"));
}

absl::Status NoSuchSession(absl::string_view name) {
  return WithField(absl::NotFoundError("session: no such session"), {"session", std::string(name.substr(0, 64)), ""});
}

GradientSession::GradientSession(Head head, std::unique_ptr<linear_logp::SessionTensors> tensors,
                                 std::vector<ByteBudget::Reservation> reservations)
    : head_(std::move(head)), bytes_(BytesOf(reservations)), memory_(std::make_shared<Memory>()) {
  memory_->reservations = std::move(reservations);
  memory_->tensors = std::move(tensors);
}

GradientSession::~GradientSession() { head_.device->executor->Discard(std::move(memory_)); }

GradientSession::Id GradientSession::ToId(absl::string_view text) {
  Id id = {};
  std::copy_n(text.begin(), std::min(text.size(), id.size()), id.begin());
  return id;
}

GradientSession::Progress GradientSession::progress() const {
  MutexLock lock(&mutex_);
  return progress_;
}

void GradientSession::End() {
  MutexLock lock(&mutex_);
  ended_ = true;
}

bool GradientSession::ended() const {
  MutexLock lock(&mutex_);
  return ended_;
}

std::optional<std::int64_t> GradientSession::SequenceOf(absl::string_view batch_id) const {
  MutexLock lock(&mutex_);
  // From the newest: what is sent again was sent lately.
  const auto it = std::find(batch_ids_.rbegin(), batch_ids_.rend(), ToId(batch_id));
  if (it == batch_ids_.rend()) return std::nullopt;
  return progress_.sequence - std::distance(batch_ids_.rbegin(), it);
}

std::int64_t GradientSession::RecordBatch(absl::string_view batch_id, std::int64_t num_tokens) {
  MutexLock lock(&mutex_);
  batch_ids_.push_back(ToId(batch_id));
  if (batch_ids_.size() > kRememberedBatches) batch_ids_.pop_front();
  ++progress_.batches;
  progress_.num_tokens += num_tokens;
  return ++progress_.sequence;
}

std::optional<v1::FetchSessionResponse> GradientSession::AnswerOf(absl::string_view request_id) const {
  MutexLock lock(&mutex_);
  const auto it = std::find_if(resets_.begin(), resets_.end(),
                               [id = ToId(request_id)](const auto& reset) { return reset.first == id; });
  if (it == resets_.end()) return std::nullopt;
  return it->second;
}

void GradientSession::RecordReset(absl::string_view request_id, v1::FetchSessionResponse answer) {
  MutexLock lock(&mutex_);
  resets_.emplace_back(ToId(request_id), std::move(answer));
  if (resets_.size() > kRememberedResets) resets_.pop_front();
  progress_.batches = 0;
  progress_.num_tokens = 0;
}

}  // namespace keval::server
