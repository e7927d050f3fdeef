#include "client/channel.h"

#include <arpa/inet.h>
#include <grpc/grpc.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>
#include <netinet/in.h>

#include <array>
#include <cstdlib>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/field_error.h"
#include "base/number.h"

namespace keval {
namespace {

constexpr int kMaxReceiveBytes = 16 << 20;  // Answers to unary gradients have at most twice max_unary_bytes.
constexpr int kBulkLookaheadBytes = 4 << 20;
constexpr int kKeepaliveMs = 20'000;  // A server that vanished is noticed after these two.
constexpr int kKeepaliveTimeoutMs = 10'000;

bool IsLocalV6(const in6_addr& address) {
  if (IN6_IS_ADDR_LOOPBACK(&address) || IN6_IS_ADDR_UNSPECIFIED(&address)) return true;
  return IN6_IS_ADDR_V4MAPPED(&address) && address.s6_addr[12] == 127;
}

bool IsLocalV4(const in_addr& address) {
  const std::uint32_t bits = ntohl(address.s_addr);
  return (bits >> 24) == 127 || bits == 0;
}

bool IsHostCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' || c == '_';
}

// Whether a comma-separated list of host name endings, as in no_proxy, covers `host`.
bool Covers(absl::string_view list, absl::string_view host) {
  for (const absl::string_view entry : absl::StrSplit(list, ',', absl::SkipWhitespace())) {
    if (absl::EndsWithIgnoreCase(host, absl::StripAsciiWhitespace(entry))) return true;
  }
  return false;
}

const char* NonEmptyVariable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr && value[0] != '\0' ? value : nullptr;
}

}  // namespace

bool Address::IsLocal() const {
  if (!unix_path.empty()) return true;
  if (absl::EqualsIgnoreCase(absl::StripSuffix(host, "."), "localhost")) return true;
  in_addr v4 = {};
  // inet_aton also reads "127.1", as the resolver does.
  if (inet_aton(host.c_str(), &v4) != 0) return IsLocalV4(v4);
  in6_addr v6 = {};
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IsLocalV6(v6);
}

std::string Address::Target() const {
  if (!unix_path.empty()) return absl::StrCat("unix:", unix_path);
  const bool v6 = absl::StrContains(host, ':');
  return absl::StrCat("dns:///", v6 ? "[" : "", host, v6 ? "]" : "", ":", port);
}

absl::StatusOr<Address> ParseAddress(absl::string_view text) {
  const auto refuse = [&] { return InvalidField("server", text, "host:port, [v6]:port or unix:/abs/path"); };
  Address address;
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, "unix:")) {
    constexpr std::size_t kMaxUnixPath = 107;  // sockaddr_un's, less the zero at its end.
    if (rest.empty() || rest.front() != '/' || rest.size() > kMaxUnixPath) return refuse();
    address.unix_path = std::string(rest);
    return address;
  }
  const std::size_t colon = rest.rfind(':');
  if (colon == absl::string_view::npos) return refuse();
  const auto port = ParseInt64(rest.substr(colon + 1));
  if (!port || *port < 1 || *port > 65535) return refuse();
  absl::string_view host = rest.substr(0, colon);
  if (absl::ConsumePrefix(&host, "[") && absl::ConsumeSuffix(&host, "]")) {
    in6_addr v6 = {};
    if (inet_pton(AF_INET6, std::string(host).c_str(), &v6) != 1) return refuse();
  } else {
    if (host.empty()) return refuse();
    for (const char c : host) {
      if (!IsHostCharacter(c)) return refuse();
    }
  }
  address.host = std::string(host);
  address.port = static_cast<int>(*port);
  return address;
}

std::string ProxyVariable(const Address& address) {
  if (address.IsLocal()) return "";
  // gRPC's own order (1.51, http_proxy_mapper.cc); it doesn't read the upper-case names.
  for (const char* name : {"grpc_proxy", "https_proxy", "http_proxy"}) {
    if (NonEmptyVariable(name) == nullptr) continue;
    const char* exceptions = NonEmptyVariable("no_grpc_proxy");
    if (exceptions == nullptr) exceptions = NonEmptyVariable("no_proxy");
    return exceptions != nullptr && Covers(exceptions, address.host) ? "" : name;
  }
  return "";
}

std::shared_ptr<grpc::Channel> MakeChannel(const Address& address, Traffic traffic, const TransportSecurity& security) {
  grpc::ChannelArguments arguments;
  if (address.IsLocal()) arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(kMaxReceiveBytes);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // A restarted server is found again within a second, not after gRPC's 20.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  if (traffic == Traffic::kBulk) {
    arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kBulkLookaheadBytes);
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  }
  if (!security.server_name.empty()) arguments.SetSslTargetNameOverride(security.server_name);
  return grpc::CreateCustomChannel(
      address.Target(), security.credentials != nullptr ? security.credentials : grpc::InsecureChannelCredentials(),
      arguments);
}

}  // namespace keval
