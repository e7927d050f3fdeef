#include "server/ready_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace keval::server {
namespace {

nlohmann::ordered_json OrNull(const std::optional<std::string>& text) {
  return text.has_value() ? nlohmann::ordered_json(*text) : nlohmann::ordered_json(nullptr);
}

absl::Status CannotWrite(const std::string& path, int error) {
  return absl::UnavailableError(
      absl::StrCat("--ready_file: ", PrintableText(path, 512), ": ", std::generic_category().message(error)));
}

}  // namespace

std::string ReadyText(const ServedAddresses& addresses, int pid) {
  nlohmann::ordered_json json;
  json["control"] = addresses.control.front();
  json["control_all"] = addresses.control;
  json["bulk"] = OrNull(addresses.bulk);
  json["health"] = OrNull(addresses.health);
  json["metrics"] = OrNull(addresses.metrics);
  json["pid"] = pid;
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

absl::Status WriteReadyFile(const std::string& path, const std::string& text) {
  const std::string unfinished = absl::StrCat(path, ".", getpid(), ".tmp");
  const int fd = open(unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return CannotWrite(path, errno);
  const ssize_t written = write(fd, text.data(), text.size());
  const int error = written == static_cast<ssize_t>(text.size()) ? 0 : (written < 0 ? errno : ENOSPC);
  close(fd);
  if (error == 0 && std::rename(unfinished.c_str(), path.c_str()) == 0) return absl::OkStatus();
  absl::Status status = CannotWrite(path, error != 0 ? error : errno);
  unlink(unfinished.c_str());
  return status;
}

}  // namespace keval::server
