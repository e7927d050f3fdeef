#include "server/job_retention.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace keval::server {
namespace {

constexpr std::size_t kJobsAtOnce = 50;
constexpr absl::Duration kLookInterval = absl::Hours(24);
constexpr absl::Duration kRetryDelay = absl::Hours(1);

}  // namespace

void JobRetention::Tidy(absl::Time now) {
  if (limits_.days == 0 && limits_.max_jobs == 0) return;
  absl::Status status;
  if (expired_.empty() && now >= next_look_) {
    next_look_ = now + kLookInterval;
    const std::int64_t ended_before_ms =
        limits_.days > 0 ? absl::ToUnixMillis(now - absl::Hours(24) * limits_.days) : 0;
    absl::StatusOr<std::vector<std::string>> found = store_->ExpiredJobs(ended_before_ms, limits_.max_jobs);
    status = found.status();
    if (found.ok()) expired_ = *std::move(found);
    if (!expired_.empty()) spdlog::info("deleting {} jobs that ended long ago or are too many", expired_.size());
  }
  if (!expired_.empty()) {
    const std::size_t count = std::min(kJobsAtOnce, expired_.size());
    status = store_->DeleteEnded(absl::MakeConstSpan(expired_).last(count));
    expired_.resize(expired_.size() - count);
  }
  if (status.ok()) return;
  spdlog::warn("jobs that have expired stay for now: {}", std::string(status.message()));
  expired_.clear();
  next_look_ = now + kRetryDelay;
}

}  // namespace keval::server
