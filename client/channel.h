// Addresses and gRPC channels.
#ifndef KEVAL_CLIENT_CHANNEL_H_
#define KEVAL_CLIENT_CHANNEL_H_

#include <cstdint>
#include <memory>
#include <string>

#include <grpcpp/channel.h>
#include <grpcpp/security/credentials.h>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace keval {

struct Address {
  std::string host;  // Without brackets; empty for a Unix socket.
  int port = 0;
  std::string unix_path;  // Absolute; empty otherwise.

  // 127.0.0.0/8 in every spelling, ::1, their mapped and unspecified forms, localhost, and Unix sockets.
  bool IsLocal() const;
  std::string Target() const;  // For gRPC.
};

// "host:port", "[v6]:port" or "unix:/abs/path"; INVALID_ARGUMENT (field "server") for anything else.
absl::StatusOr<Address> ParseAddress(absl::string_view text);

// The environment variable through which gRPC takes a proxy for `address`; empty where it takes none.
std::string ProxyVariable(const Address& address);

enum class Traffic : std::uint8_t { kControl, kBulk };

// Plaintext where there are no credentials.
struct TransportSecurity {
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  std::string server_name;  // In the server's certificate, where it isn't the address's host.
};

// Connects at the first call. Each channel has connections of its own, so that bulk transfers don't delay small calls.
std::shared_ptr<grpc::Channel> MakeChannel(const Address& address, Traffic traffic,
                                           const TransportSecurity& security = {});

}  // namespace keval

#endif  // KEVAL_CLIENT_CHANNEL_H_
