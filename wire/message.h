// gRPC messages with tensor bytes: what a stream of ours is declared with in place of the generated class. A peer with
// the generated class can't tell the difference.
#ifndef KEVAL_WIRE_MESSAGE_H_
#define KEVAL_WIRE_MESSAGE_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>
#include <grpcpp/support/status.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "wire/frame.h"
#include "wire/slices.h"

namespace keval::wire {

// A Proto to be sent: `fields`, whose own offset and data are not set, with `payload` in their place. Read while it is
// being written, but for the payload's bytes: see Payload.
template <typename Proto>
struct SentMessage {
  const Proto* fields = nullptr;  // Null: none is set.
  Payload payload;
};

// A Proto that was received: `fields` without offset and data, which are in `data`. Not copyable: `data` points into
// `slices`.
template <typename Proto>
struct ReceivedMessage {
  ReceivedMessage() = default;
  ReceivedMessage(const ReceivedMessage&) = delete;
  ReceivedMessage& operator=(const ReceivedMessage&) = delete;

  Proto fields;
  FrameData data;
  // INVALID_ARGUMENT where the peer sent something else than a Proto: gRPC would only end the stream.
  absl::Status status;
  std::vector<grpc::Slice> slices;
};

}  // namespace keval::wire

namespace grpc {

template <typename Proto>
class SerializationTraits<keval::wire::SentMessage<Proto>> {
 public:
  static Status Serialize(const keval::wire::SentMessage<Proto>& message, ByteBuffer* buffer, bool* own_buffer) {
    std::string fields;
    if (message.fields != nullptr && !message.fields->SerializeToString(&fields)) {
      return {StatusCode::INTERNAL, "a message of more than 2 GiB"};
    }
    *buffer = keval::wire::EncodeMessage(fields, message.payload);
    *own_buffer = true;
    return Status::OK;
  }
};

template <typename Proto>
class SerializationTraits<keval::wire::ReceivedMessage<Proto>> {
 public:
  static Status Deserialize(ByteBuffer* buffer, keval::wire::ReceivedMessage<Proto>* message) {
    std::string fields;
    message->status = keval::wire::ParseMessage(buffer, &message->slices, &message->data, &fields);
    if (message->status.ok() && !message->fields.ParseFromString(fields)) {
      message->status = absl::InvalidArgumentError("the message is no protobuf encoding of its type");
    }
    return Status::OK;
  }
};

}  // namespace grpc

#endif  // KEVAL_WIRE_MESSAGE_H_
