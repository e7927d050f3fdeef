// Length-prefixed protobuf messages over a socket.
#ifndef KEVAL_SERVER_WORKER_MESSAGE_CHANNEL_H_
#define KEVAL_SERVER_WORKER_MESSAGE_CHANNEL_H_

#include <google/protobuf/message_lite.h>

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace keval::worker {

inline constexpr std::size_t kMaxMessageBytes = std::size_t{16} << 20;

// `message` with its length before it. RESOURCE_EXHAUSTED beyond kMaxMessageBytes.
absl::StatusOr<std::string> Encode(const google::protobuf::MessageLite& message);

// Takes bytes as they come and gives whole messages back. Not thread-safe.
class MessageDecoder {
 public:
  void Append(const char* data, std::size_t size) { buffer_.append(data, size); }

  // True: `message` was filled and its bytes are gone. False: more bytes are needed. DATA_LOSS: not our format; the
  // channel is of no more use.
  absl::StatusOr<bool> Next(google::protobuf::MessageLite* message);

 private:
  std::string buffer_;
};

// Blocking, whole-message calls for the worker's end. Write: UNAVAILABLE when the other end has gone. Read: the same
// where it went in the middle of a message, OUT_OF_RANGE where it went between messages; DATA_LOSS as above.
class BlockingChannel {
 public:
  // `fd` stays the caller's, and open for as long as this lives.
  explicit BlockingChannel(int fd) : fd_(fd) {}
  absl::Status Write(const google::protobuf::MessageLite& message) const;
  absl::Status Read(google::protobuf::MessageLite* message);

 private:
  int fd_;
  MessageDecoder decoder_;
  bool partial_ = false;
};

}  // namespace keval::worker

#endif  // KEVAL_SERVER_WORKER_MESSAGE_CHANNEL_H_
