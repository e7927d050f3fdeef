#include "core/linear_logp/host_memory.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/number.h"

namespace keval::linear_logp {
namespace {

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

// The number after `key` in text of "key value" lines.
std::optional<std::int64_t> Keyed(absl::string_view text, absl::string_view key) {
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    if (words.size() >= 2 && words[0] == key) return ParseInt64(words[1]);
  }
  return std::nullopt;
}

// The one number in a file; nullopt for "max" or no file.
std::optional<std::int64_t> Number(const std::filesystem::path& path) {
  return ParseInt64(absl::StripAsciiWhitespace(ReadFile(path)));
}

struct GroupFiles {
  const char* limit;
  const char* used;
  const char* droppable;  // Key in memory.stat.
};
constexpr GroupFiles kVersion1 = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
constexpr GroupFiles kVersion2 = {"memory.max", "memory.current", "inactive_file"};

// Lowers `memory` to what the group in `folder` allows.
void ApplyGroup(const std::filesystem::path& folder, const GroupFiles& files, HostMemory* memory) {
  const std::optional<std::int64_t> limit = Number(folder / files.limit);
  const std::optional<std::int64_t> used = Number(folder / files.used);
  if (!limit || !used || *limit < 0) return;
  const std::int64_t droppable = Keyed(ReadFile(folder / "memory.stat"), files.droppable).value_or(0);
  const std::int64_t held = std::max<std::int64_t>(0, *used - droppable);
  memory->total_bytes = std::min(memory->total_bytes, *limit);
  memory->free_bytes = std::min(memory->free_bytes, std::max<std::int64_t>(0, *limit - held));
}

// The group at `path` below `mount` and all its parents: each limits what is in it. Inside a container `path` may not
// exist, while the mount itself is the container's group.
void ApplyGroupAndParents(const std::filesystem::path& mount, absl::string_view path, const GroupFiles& files,
                          HostMemory* memory) {
  std::filesystem::path folder = mount;
  ApplyGroup(folder, files, memory);
  for (const absl::string_view part : absl::StrSplit(path, '/', absl::SkipEmpty())) {
    if (part == "..") return;  // Outside our name space: nothing below is ours.
    folder /= std::string(part);
    ApplyGroup(folder, files, memory);
  }
}

}  // namespace

HostMemory ReadHostMemory(const std::filesystem::path& root) {
  const std::string meminfo = ReadFile(root / "proc/meminfo");
  const auto bytes = [&meminfo](absl::string_view key) {
    const std::optional<std::int64_t> kib = Keyed(meminfo, key);
    return kib && *kib >= 0 && *kib < kUnlimited / 1024 ? *kib * 1024 : kUnlimited;
  };
  HostMemory memory = {bytes("MemTotal:"), bytes("MemAvailable:")};
  const std::filesystem::path groups = root / "sys/fs/cgroup";
  for (const absl::string_view line : absl::StrSplit(ReadFile(root / "proc/self/cgroup"), '\n', absl::SkipEmpty())) {
    // "4:memory:/path" (version 1) or "0::/path" (version 2).
    const std::vector<absl::string_view> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    if (fields[1].empty()) {
      ApplyGroupAndParents(groups, fields[2], kVersion2, &memory);
    } else if (const std::vector<absl::string_view> controllers = absl::StrSplit(fields[1], ',');
               std::find(controllers.begin(), controllers.end(), "memory") != controllers.end()) {
      ApplyGroupAndParents(groups / "memory", fields[2], kVersion1, &memory);
    }
  }
  return memory;
}

}  // namespace keval::linear_logp
