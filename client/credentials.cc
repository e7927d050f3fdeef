#include "client/credentials.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <system_error>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/memory/memory.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/field_error.h"
#include "base/file.h"
#include "base/number.h"

namespace keval {
namespace {

constexpr std::int64_t kMaxPemBytes = std::int64_t{1} << 20;
constexpr std::int64_t kMaxTokenBytes = 4096;
constexpr absl::string_view kTokenSocketSuffix = ".token";
constexpr timeval kTokenSocketTimeout = {5, 0};

// `status` under the option's name, which is all that a caller knows of the file.
absl::Status OfOption(const absl::Status& status, absl::string_view option) {
  const auto violation = GetFieldViolation(status);
  return WithField(absl::InvalidArgumentError(absl::StrCat(option, ": ", status.message())),
                   {std::string(option), violation ? violation->field : "", ""});
}

absl::StatusOr<std::string> ReadPem(absl::string_view option, const std::string& path, bool secret) {
  if (path.empty()) return std::string();
  absl::StatusOr<std::string> text = secret ? ReadSecretFile(path, kMaxPemBytes) : ReadWholeFile(path, kMaxPemBytes);
  if (!text.ok()) return OfOption(text.status(), option);
  if (text->find("-----BEGIN ") == std::string::npos) {
    return InvalidField(option, path, "a PEM file");
  }
  return text;
}

absl::StatusOr<std::string> ReadToken(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadSecretFile(path, kMaxTokenBytes);
  if (!text.ok()) return OfOption(text.status(), "token_file");
  const absl::string_view token = absl::StripTrailingAsciiWhitespace(*text);
  const bool visible = std::all_of(token.begin(), token.end(),
                                   [](char c) { return absl::ascii_isgraph(static_cast<unsigned char>(c)); });
  if (token.empty() || !visible) return InvalidField("token_file", path, "a file of one line, the token");
  return std::string(token);
}

absl::Status SocketError(const std::string& path, int error) {
  return absl::UnavailableError(absl::StrCat(path, ": ", std::generic_category().message(error)));
}

// All that is written at the socket `path` before it is closed.
absl::StatusOr<std::string> ReadSocket(const std::string& path) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return SocketError(path, errno);
  const absl::Cleanup close_fd = [fd] { close(fd); };
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &kTokenSocketTimeout, sizeof(kTokenSocketTimeout));
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &kTokenSocketTimeout, sizeof(kTokenSocketTimeout));
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path, path.c_str(), path.size() + 1);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&name), sizeof(name)) != 0) return SocketError(path, errno);
  std::string text;
  std::array<char, 512> piece{};
  while (text.size() <= piece.size()) {
    const ssize_t count = recv(fd, piece.data(), piece.size(), 0);
    if (count == 0) return text;
    if (count < 0 && errno != EINTR) return SocketError(path, errno);
    if (count > 0) text.append(piece.data(), static_cast<std::size_t>(count));
  }
  return absl::UnavailableError(absl::StrCat(path, ": more than a token is written there"));
}

}  // namespace

absl::StatusOr<std::shared_ptr<Credentials>> Credentials::Make(Address server, const ConnectionOptions& options) {
  auto credentials = absl::WrapUnique(new Credentials(std::move(server), options));
  if (options.tls_cert.empty() != options.tls_key.empty()) {
    return InvalidField(options.tls_cert.empty() ? "tls_cert" : "tls_key", "", "given where the other one is");
  }
  if (options.tls_ca.empty() && !options.tls_cert.empty()) {
    return InvalidField("tls_ca", "", "given where tls_cert is: the CA of the server's certificate");
  }
  if (!options.tls_ca.empty()) {
    absl::StatusOr<std::string> ca = ReadPem("tls_ca", options.tls_ca, false);
    if (!ca.ok()) return ca.status();
    absl::StatusOr<std::string> cert = ReadPem("tls_cert", options.tls_cert, false);
    if (!cert.ok()) return cert.status();
    absl::StatusOr<std::string> key = ReadPem("tls_key", options.tls_key, true);
    if (!key.ok()) return key.status();
    credentials->tls_ = grpc::SslCredentials({*std::move(ca), *std::move(key), *std::move(cert)});
  }
  if (!options.token_file.empty()) {
    if (const auto token = ReadToken(options.token_file); !token.ok()) return token.status();
    if (credentials->tls_ == nullptr && !credentials->server_.IsLocal()) {
      return InvalidField("token_file", options.token_file,
                          "used with tls_ca: it would go to another machine in clear text");
    }
  }
  return std::shared_ptr<Credentials>(std::move(credentials));
}

TransportSecurity Credentials::ForChannel(const Address& address) const {
  if (tls_ == nullptr || !address.unix_path.empty()) return {};
  return {tls_, tls_name_};
}

bool Credentials::MayGoTo(const Address& address) const {
  if (token_file_.empty() && server_.unix_path.empty()) return true;  // There is none.
  if (address.IsLocal()) return server_.IsLocal();
  return tls_ != nullptr;
}

absl::StatusOr<std::string> Credentials::Authorization() {
  absl::StatusOr<std::string> token = std::string();
  if (!token_file_.empty()) {
    token = ReadToken(token_file_);
  } else if (!server_.unix_path.empty()) {
    token = UidToken();
  }
  if (!token.ok() || token->empty()) return token;
  return absl::StrCat("Bearer ", *token);
}

absl::StatusOr<std::string> Credentials::UidToken() {
  const std::string path = absl::StrCat(server_.unix_path, kTokenSocketSuffix);
  struct stat info {};
  // A server that doesn't ask its callers who they are.
  if (path.size() >= sizeof(sockaddr_un::sun_path) || stat(path.c_str(), &info) != 0) return std::string();
  const SocketFile file{info.st_ino, {info.st_ctim.tv_sec, info.st_ctim.tv_nsec}};
  {
    const MutexLock lock(&mutex_);
    if (file == socket_file_ && absl::Now() < renew_) return uid_token_;
  }
  // Not under the lock: two first calls may both ask, and either token is good.
  const absl::StatusOr<std::string> answer = ReadSocket(path);
  if (!answer.ok()) return answer.status();
  const std::vector<std::string> words = absl::StrSplit(absl::StripSuffix(*answer, "\n"), ' ');
  const std::optional<std::int64_t> seconds = words.size() == 2 ? ParseInt64(words[1]) : std::nullopt;
  if (!seconds.has_value()) return absl::UnauthenticatedError(absl::StrCat(path, ": gives this user no token"));
  const MutexLock lock(&mutex_);
  socket_file_ = file;
  uid_token_ = words[0];
  renew_ = absl::Now() + absl::Seconds(*seconds) / 2;
  return uid_token_;
}

}  // namespace keval
