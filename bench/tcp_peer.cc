#include "bench/tcp_peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/large_memory.h"

namespace keval::bench {
namespace {

constexpr std::size_t kCallBytes = std::size_t{1} << 20;
enum Direction : std::uint64_t { kPush = 1, kPull = 2 };

bool SendAll(int socket, const std::byte* data, std::size_t size) {
  while (size > 0) {
    const ssize_t sent = send(socket, data, std::min(size, kCallBytes), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    data += sent;
    size -= static_cast<std::size_t>(sent);
  }
  return true;
}

bool ReceiveAll(int socket, std::byte* data, std::size_t size) {
  while (size > 0) {
    const ssize_t received = recv(socket, data, std::min(size, kCallBytes), 0);
    if (received <= 0) return false;
    data += received;
    size -= static_cast<std::size_t>(received);
  }
  return true;
}

// Direction and size, as both ends of one machine read them.
bool SendCommand(int socket, std::uint64_t direction, std::uint64_t size) {
  const std::array<std::uint64_t, 2> command = {direction, size};
  return SendAll(socket, reinterpret_cast<const std::byte*>(command.data()), sizeof(command));
}

// The child: until the other end closes.
void Serve(int socket, std::byte* memory, std::size_t bytes) {
  std::array<std::uint64_t, 2> command = {};
  while (ReceiveAll(socket, reinterpret_cast<std::byte*>(command.data()), sizeof(command))) {
    const auto [direction, size] = command;
    if (size > bytes) return;
    if (direction == kPull) {
      if (!SendAll(socket, memory, size)) return;
    } else {
      constexpr std::byte kDone{1};
      if (!ReceiveAll(socket, memory, size) || !SendAll(socket, &kDone, 1)) return;
    }
  }
}

absl::Status Failed(const char* what) {
  return absl::UnavailableError(absl::StrCat("plain TCP: ", what, ": ", std::strerror(errno)));
}

void Tune(int socket) {
  const int on = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TcpPeer>> TcpPeer::Start(std::size_t bytes) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (listener < 0 || bind(listener, generic, length) != 0 || listen(listener, 1) != 0 ||
      getsockname(listener, generic, &length) != 0) {
    return Failed("listening");
  }
  const pid_t pid = fork();
  if (pid < 0) return Failed("fork");
  if (pid == 0) {
    const LargeMemory memory = AllocateLarge(bytes);
    if (memory == nullptr) _exit(1);
    std::memset(memory.get(), 1, bytes);
    const int accepted = accept(listener, nullptr, nullptr);
    Tune(accepted);
    Serve(accepted, memory.get(), bytes);
    _exit(0);
  }
  close(listener);
  const int connected = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  auto peer = absl::WrapUnique(new TcpPeer(pid, connected));
  if (connected < 0 || connect(connected, generic, length) != 0) return Failed("connecting");
  Tune(connected);
  return peer;
}

TcpPeer::~TcpPeer() {
  if (socket_ >= 0) close(socket_);
  waitpid(pid_, nullptr, 0);
}

absl::StatusOr<absl::Duration> TcpPeer::Push(absl::Span<const std::byte> bytes) const {
  const absl::Time start = absl::Now();
  std::byte done{0};
  if (!SendCommand(socket_, kPush, bytes.size()) || !SendAll(socket_, bytes.data(), bytes.size()) ||
      !ReceiveAll(socket_, &done, 1)) {
    return Failed("pushing");
  }
  return absl::Now() - start;
}

absl::StatusOr<absl::Duration> TcpPeer::Pull(absl::Span<std::byte> bytes) const {
  const absl::Time start = absl::Now();
  if (!SendCommand(socket_, kPull, bytes.size()) || !ReceiveAll(socket_, bytes.data(), bytes.size())) {
    return Failed("pulling");
  }
  return absl::Now() - start;
}

}  // namespace keval::bench
