#include "server/peer_token_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace keval::server {
namespace {

// What the kernel shows for a user of another user namespace who has no uid in this one: many may share it.
constexpr uid_t kUnmappedUid = 65534;
constexpr int kBacklog = 64;
constexpr int kOutOfDescriptorsPauseMs = 100;

absl::Status CannotServe(absl::string_view flag, const std::string& path, int error) {
  return absl::FailedPreconditionError(
      absl::StrCat(flag, ": cannot listen on ", PrintableText(path), ": ", std::generic_category().message(error)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<PeerTokenSocket>> PeerTokenSocket::Start(absl::string_view flag,
                                                                        const ListenAddress& beside,
                                                                        const PeerTokens* tokens) {
  const std::string path = absl::StrCat(beside.path, kPeerTokenSuffix);
  absl::StatusOr<ListenAddress> address = ParseListenAddress(flag, absl::StrCat("unix:", path));
  if (!address.ok()) return address.status();  // Too long.
  if (absl::Status status = PrepareToListen(flag, *address); !status.ok()) return status;
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener < 0) return CannotServe(flag, path, errno);
  absl::Cleanup close_listener = [listener] { close(listener); };
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path, path.c_str(), path.size() + 1);
  if (bind(listener, reinterpret_cast<const sockaddr*>(&name), sizeof(name)) != 0 || listen(listener, kBacklog) != 0) {
    return CannotServe(flag, path, errno);
  }
  const int stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (stop < 0) return CannotServe(flag, path, errno);
  std::move(close_listener).Cancel();
  return absl::WrapUnique(new PeerTokenSocket(path, listener, stop, tokens));
}

PeerTokenSocket::PeerTokenSocket(std::string path, int listener, int stop, const PeerTokens* tokens)
    : path_(std::move(path)), listener_(listener), stop_(stop), tokens_(tokens), thread_([this] { Serve(); }) {}

PeerTokenSocket::~PeerTokenSocket() {
  const std::uint64_t one = 1;
  static_cast<void>(!write(stop_, &one, sizeof(one)));  // An eventfd that was never written takes it.
  thread_.join();
  unlink(path_.c_str());
  close(listener_);
  close(stop_);
}

void PeerTokenSocket::Serve() const {
  std::array<pollfd, 2> waited = {pollfd{listener_, POLLIN, 0}, pollfd{stop_, POLLIN, 0}};
  while (true) {
    if (poll(waited.data(), waited.size(), -1) < 0 && errno != EINTR) return;
    if (waited[1].revents != 0) return;
    const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (connection >= 0) {
      Answer(connection);
      close(connection);
    } else if (errno == EMFILE || errno == ENFILE) {
      poll(&waited[1], 1, kOutOfDescriptorsPauseMs);
    }
  }
}

void PeerTokenSocket::Answer(int connection) const {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid == kUnmappedUid) return;
  const std::string line =
      absl::StrCat(tokens_->Issue(peer.uid), " ", absl::ToInt64Seconds(PeerTokens::kLifetime), "\n");
  // A fresh socket's buffer holds the line; who has gone already needs none.
  static_cast<void>(!send(connection, line.data(), line.size(), MSG_NOSIGNAL));
}

}  // namespace keval::server
