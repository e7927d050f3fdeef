#include "server/descriptor_watch.h"

#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <filesystem>
#include <iterator>
#include <system_error>

namespace keval::server {
namespace {

constexpr std::chrono::seconds kCountInterval{10};
constexpr std::chrono::minutes kWarningInterval{1};

}  // namespace

DescriptorUse ReadDescriptorUse() {
  DescriptorUse use;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) use.limit = static_cast<std::int64_t>(limit.rlim_cur);
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", error), end; !error && entry != end;
       entry.increment(error)) {
    ++use.open;
  }
  if (use.open > 0) --use.open;  // The one that this listing needs.
  return use;
}

bool DescriptorWatch::Due(const DescriptorUse& use, std::chrono::steady_clock::time_point now) {
  if (use.limit <= 0 || use.open < use.limit / 5 * 4 || now < next_warning_) return false;
  next_warning_ = now + kWarningInterval;
  return true;
}

void DescriptorWatch::Tidy() {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_count_) return;
  next_count_ = now + kCountInterval;
  const DescriptorUse use = ReadDescriptorUse();
  if (!Due(use, now)) return;
  spdlog::warn(
      "{} of {} file descriptors are in use; at the limit no connection is accepted any more: raise it, or cap "
      "connections in front of this server",
      use.open, use.limit);
}

}  // namespace keval::server
