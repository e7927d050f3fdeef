#include "server/worker/host_load.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/number.h"

namespace keval::worker {
namespace {

std::vector<std::string> Words(const std::string& text) { return absl::StrSplit(text, ' ', absl::SkipEmpty()); }

// All cores together; time given to other machines of the same host is busy too.
std::optional<std::int64_t> BusyTicks() {
  std::ifstream file("/proc/stat");
  std::string line;
  std::getline(file, line);
  // cpu user nice system idle iowait irq softirq steal …; guests are in user and nice.
  const std::vector<std::string> words = Words(line);
  constexpr std::size_t kBusy[] = {1, 2, 3, 6, 7, 8};
  if (words.size() < 9 || words[0] != "cpu") {
    return std::nullopt;
  }
  std::int64_t sum = 0;
  for (const std::size_t at : kBusy) {
    const auto ticks = ParseInt64(words[at]);
    if (!ticks.has_value()) {
      return std::nullopt;
    }
    sum += *ticks;
  }
  return sum;
}

// User and system time of a process that still is.
std::optional<std::int64_t> TicksOf(int process) {
  std::ifstream file(absl::StrCat("/proc/", process, "/stat"));
  std::string line;
  std::getline(file, line);
  // The name, in parentheses, may hold anything; utime and stime are the 12th and 13th words behind it.
  const std::size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) {
    return std::nullopt;
  }
  const std::vector<std::string> words = Words(line.substr(name_end + 1));
  constexpr std::size_t kUser = 11;
  constexpr std::size_t kSystem = 12;
  if (words.size() <= kSystem) {
    return std::nullopt;
  }
  const auto user = ParseInt64(words[kUser]);
  const auto system = ParseInt64(words[kSystem]);
  return user.has_value() && system.has_value() ? std::optional(*user + *system) : std::nullopt;
}

}  // namespace

HostLoad::HostLoad() : begin_(std::chrono::steady_clock::now()), busy_(BusyTicks()), own_(TicksOf(getpid())) {}

double HostLoad::ForeignCores(const std::vector<int>& workers) const {
  constexpr double kLeastSeconds = 0.1;
  const double nothing = std::numeric_limits<double>::quiet_NaN();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  const auto busy = BusyTicks();
  const auto own = TicksOf(getpid());
  if (!busy_.has_value() || !own_.has_value() || !busy.has_value() || !own.has_value() || seconds < kLeastSeconds) {
    return nothing;
  }
  std::int64_t foreign = (*busy - *busy_) - (*own - *own_);
  for (const int worker : workers) {
    if (worker == getpid()) {
      continue;
    }
    const auto ticks = TicksOf(worker);
    if (!ticks.has_value()) {
      return nothing;
    }
    foreign -= *ticks;
  }
  return std::max(0.0, static_cast<double>(foreign) / static_cast<double>(sysconf(_SC_CLK_TCK)) / seconds);
}

}  // namespace keval::worker
