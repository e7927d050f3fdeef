#include "server/listen_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <system_error>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/field_error.h"
#include "base/number.h"
#include "base/text.h"

namespace keval::server {
namespace {

constexpr absl::string_view kForms = "host:port, [v6]:port or unix:/absolute/path";

std::string ErrorText(int error) { return std::generic_category().message(error); }

absl::Status CannotListen(absl::string_view flag, const ListenAddress& address, absl::string_view why) {
  return absl::FailedPreconditionError(
      absl::StrCat(flag, ": cannot listen on ", PrintableText(address.Text()), ": ", why));
}

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

// Null where the host doesn't resolve.
Addresses Resolve(const ListenAddress& address) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(address.host.c_str(), absl::StrCat(address.port).c_str(), &hints, &found);
  return Addresses(error == 0 ? found : nullptr);
}

bool IsLoopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, address, sizeof(v4));
    return (ntohl(v4.sin_addr.s_addr) >> 24) == 127;
  }
  if (address->sa_family == AF_INET6) {
    sockaddr_in6 v6{};
    std::memcpy(&v6, address, sizeof(v6));
    return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) ||
           (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr) && v6.sin6_addr.s6_addr[12] == 127);
  }
  return false;
}

// 0 where the addresses can be bound, those that this machine doesn't have left out (gRPC leaves them out too).
int ProbeTcp(const addrinfo* addresses) {
  bool bound = false;
  for (const addrinfo* entry = addresses; entry != nullptr; entry = entry->ai_next) {
    const int fd = socket(entry->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;  // E.g. no IPv6 here.
    const absl::Cleanup close_fd = [fd] { close(fd); };
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, entry->ai_addr, entry->ai_addrlen) == 0) {
      bound = true;
    } else if (errno != EADDRNOTAVAIL) {
      return errno;
    }
  }
  return bound ? 0 : EADDRNOTAVAIL;
}

absl::Status PrepareUnix(absl::string_view flag, const ListenAddress& address) {
  struct stat info {};
  if (lstat(address.path.c_str(), &info) != 0) {
    if (errno == ENOENT) {
      const std::string folder = address.path.substr(0, address.path.rfind('/') + 1);
      if (access(folder.c_str(), W_OK | X_OK) == 0) return absl::OkStatus();
    }
    return CannotListen(flag, address, ErrorText(errno));
  }
  if (!S_ISSOCK(info.st_mode)) {
    return CannotListen(flag, address, "a file that is not a socket is there; it is left alone");
  }
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return CannotListen(flag, address, ErrorText(errno));
  const absl::Cleanup close_fd = [fd] { close(fd); };
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path, address.path.c_str(), address.path.size() + 1);
  // EAGAIN: somebody listens, with a full backlog.
  if (connect(fd, reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0 || errno == EAGAIN) {
    return CannotListen(flag, address, "another server answers there");
  }
  if (errno != ECONNREFUSED) return CannotListen(flag, address, ErrorText(errno));
  if (unlink(address.path.c_str()) != 0 && errno != ENOENT) return CannotListen(flag, address, ErrorText(errno));
  return absl::OkStatus();
}

}  // namespace

std::string ListenAddress::Text(int bound_port) const {
  if (is_unix()) return absl::StrCat("unix:", path);
  if (absl::StrContains(host, ':')) return absl::StrCat("[", host, "]:", bound_port);
  return absl::StrCat(host, ":", bound_port);
}

absl::StatusOr<ListenAddress> ParseListenAddress(absl::string_view flag, absl::string_view text) {
  ListenAddress address;
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, "unix:")) {
    if (!absl::StartsWith(rest, "/")) return InvalidField(flag, text, "an absolute path after unix:");
    if (rest.size() >= sizeof(sockaddr_un::sun_path)) {
      return InvalidField(flag, text, absl::StrCat("a path of at most ", sizeof(sockaddr_un::sun_path) - 1, " bytes"));
    }
    if (absl::StrContains(rest, '\0')) return InvalidField(flag, text, "a path without a null byte");
    address.path = std::string(rest);
    return address;
  }
  const std::size_t colon = rest.rfind(':');
  if (colon == absl::string_view::npos || colon == 0) return InvalidField(flag, text, kForms);
  absl::string_view host = rest.substr(0, colon);
  const std::optional<std::int64_t> port = ParseInt64(rest.substr(colon + 1));
  if (!port.has_value() || *port < 0 || *port > 65535) return InvalidField(flag, text, "with a port in [0, 65535]");
  if (absl::ConsumePrefix(&host, "[")) {
    if (!absl::ConsumeSuffix(&host, "]") || host.empty()) return InvalidField(flag, text, kForms);
  } else if (absl::StrContains(host, ':')) {
    return InvalidField(flag, text, "with an IPv6 address in brackets: [v6]:port");
  }
  address.host = std::string(host);
  address.port = static_cast<int>(*port);
  return address;
}

bool IsLocal(const ListenAddress& address) {
  if (address.is_unix()) return true;
  const Addresses addresses = Resolve(address);
  if (addresses == nullptr) return false;
  for (const addrinfo* entry = addresses.get(); entry != nullptr; entry = entry->ai_next) {
    if (!IsLoopback(entry->ai_addr)) return false;
  }
  return true;
}

absl::Status PrepareToListen(absl::string_view flag, const ListenAddress& address) {
  if (address.is_unix()) return PrepareUnix(flag, address);
  const Addresses addresses = Resolve(address);
  if (addresses == nullptr) return CannotListen(flag, address, "the host has no address");
  if (const int error = ProbeTcp(addresses.get()); error != 0) return CannotListen(flag, address, ErrorText(error));
  return absl::OkStatus();
}

}  // namespace keval::server
