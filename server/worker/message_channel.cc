#include "server/worker/message_channel.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>

#include "absl/strings/str_cat.h"

namespace keval::worker {
namespace {
constexpr std::size_t kPrefixBytes = 4;
}  // namespace

absl::StatusOr<std::string> Encode(const google::protobuf::MessageLite& message) {
  const std::size_t size = message.ByteSizeLong();
  if (size > kMaxMessageBytes) {
    return absl::ResourceExhaustedError(absl::StrCat("a message of ", size, " bytes; at most ", kMaxMessageBytes));
  }
  std::string bytes;
  bytes.reserve(kPrefixBytes + size);
  for (std::size_t i = 0; i < kPrefixBytes; ++i) {
    bytes.push_back(static_cast<char>((size >> (8 * i)) & 0xff));
  }
  message.AppendToString(&bytes);
  return bytes;
}

absl::StatusOr<bool> MessageDecoder::Next(google::protobuf::MessageLite* message) {
  if (buffer_.size() < kPrefixBytes) {
    return false;
  }
  std::size_t size = 0;
  for (std::size_t i = 0; i < kPrefixBytes; ++i) {
    size |= static_cast<std::size_t>(static_cast<unsigned char>(buffer_[i])) << (8 * i);
  }
  if (size > kMaxMessageBytes) {
    return absl::DataLossError(absl::StrCat("a message that claims ", size, " bytes; at most ", kMaxMessageBytes));
  }
  if (buffer_.size() < kPrefixBytes + size) {
    return false;
  }
  if (!message->ParseFromArray(buffer_.data() + kPrefixBytes, static_cast<int>(size))) {
    return absl::DataLossError("a message that can't be parsed");
  }
  buffer_.erase(0, kPrefixBytes + size);
  return true;
}

absl::Status BlockingChannel::Write(const google::protobuf::MessageLite& message) const {
  absl::StatusOr<std::string> bytes = Encode(message);
  if (!bytes.ok()) {
    return bytes.status();
  }
  std::size_t sent = 0;
  while (sent < bytes->size()) {
    const ssize_t n = send(fd_, bytes->data() + sent, bytes->size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      return absl::UnavailableError("the other end has gone");
    }
    sent += static_cast<std::size_t>(n);
  }
  return absl::OkStatus();
}

absl::Status BlockingChannel::Read(google::protobuf::MessageLite* message) {
  for (;;) {
    absl::StatusOr<bool> whole = decoder_.Next(message);
    if (!whole.ok()) {
      return whole.status();
    }
    if (*whole) {
      partial_ = false;
      return absl::OkStatus();
    }
    std::array<char, 65536> chunk;
    const ssize_t n = recv(fd_, chunk.data(), chunk.size(), 0);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      return partial_ ? absl::UnavailableError("the other end has gone in the middle of a message")
                      : absl::OutOfRangeError("the other end has gone");
    }
    decoder_.Append(chunk.data(), static_cast<std::size_t>(n));
    partial_ = true;
  }
}

}  // namespace keval::worker
