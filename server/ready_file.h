// Tells scripts that a server serves, and where.
#ifndef KEVAL_SERVER_READY_FILE_H_
#define KEVAL_SERVER_READY_FILE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace keval::server {

struct ServedAddresses {
  std::vector<std::string> control;  // "host:port" with real ports; at least one.
  std::optional<std::string> bulk;
  std::optional<std::string> health;
  std::optional<std::string> metrics;
};

// {"control": ..., "control_all": [...], "bulk": ..., "health": ..., "metrics": ... or null, "pid": ...}.
std::string ReadyText(const ServedAddresses& addresses, int pid);

// Writes `path` whole: a reader sees all of it or nothing. UNAVAILABLE naming the path.
absl::Status WriteReadyFile(const std::string& path, const std::string& text);

}  // namespace keval::server

#endif  // KEVAL_SERVER_READY_FILE_H_
