// Assembling the frames of a stream's payload into tensors, whatever a peer sends.
#ifndef KEVAL_SERVER_TENSOR_FRAMES_H_
#define KEVAL_SERVER_TENSOR_FRAMES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "keval/v1/tensor.pb.h"
#include "wire/frame.h"
#include "wire/payload_digest.h"

namespace keval::server {

inline constexpr std::int64_t kMaxFrameBytes = std::int64_t{4} << 20;

// One tensor's place in the payload: memory for all of it, or a function that takes its bytes in order and may wait.
// `name` is the field that a refusal names.
struct PayloadSegment {
  std::string name;
  std::byte* data = nullptr;
  std::int64_t size = 0;
  std::function<absl::Status(absl::string_view piece)> sink = {};
};

// The payload is the segments' concatenation; see proto/keval/v1/tensor.proto. Does not own the memory. Not
// thread-safe.
class FrameAssembler {
 public:
  // `on_complete` is called with a segment's index once its last byte is in (for an empty one: when the one before it
  // is complete); its error becomes Add's or Finish's. `digest`: what the peer said that it would send.
  using OnComplete = std::function<absl::Status(std::size_t segment)>;
  explicit FrameAssembler(std::vector<PayloadSegment> segments, OnComplete on_complete = {},
                          v1::PayloadDigest digest = v1::PAYLOAD_DIGEST_UNSPECIFIED);

  // INVALID_ARGUMENT: `offset` isn't where the payload stands; the data is larger than a frame may be, goes beyond the
  // payload, or reaches over two tensors: nothing is copied then. A sink's error.
  absl::Status Add(std::uint64_t offset, absl::Span<const absl::string_view> pieces);

  // INVALID_ARGUMENT naming the first tensor that lacks bytes; or (field "sha256" or "xxh3") a digest in `trailer` that
  // isn't the payload's, has another length, or was not announced.
  absl::Status Finish(const v1::PayloadTrailer& trailer);

  // Of the whole payload: what was announced, by default SHA-256. REQUIRES that Finish has succeeded.
  const v1::PayloadTrailer& Digest();

 private:
  absl::Status AdvanceOverComplete();

  const std::vector<PayloadSegment> segments_;
  const OnComplete on_complete_;
  // XXH3 follows the bytes while they are in the cache; SHA-256 is computed at the end, where it is wanted at all,
  // unless a sink has taken the bytes away by then.
  std::optional<wire::PayloadDigest> running_;
  std::optional<v1::PayloadTrailer> digest_;
  std::int64_t total_ = 0;
  std::int64_t received_ = 0;
  std::size_t segment_ = 0;  // The first that is not complete.
  std::int64_t segment_received_ = 0;
};

// One payload from the messages of its stream: what a Put and a StreamGradient have in common. Not thread-safe.
class PayloadReceiver {
 public:
  PayloadReceiver(std::vector<PayloadSegment> segments, v1::PayloadDigest digest,
                  FrameAssembler::OnComplete on_complete = {})
      : assembler_(std::move(segments), std::move(on_complete), digest) {}

  // `message` is the next one, the header's own first. INVALID_ARGUMENT: a second header; anything after the trailer;
  // frames as FrameAssembler::Add.
  template <typename Message>
  absl::Status Take(const Message& message, const wire::FrameData& data) {
    return TakeParts(message.has_header(), message.has_trailer() ? &message.trailer() : nullptr, data);
  }
  // At the stream's end: as FrameAssembler::Finish.
  absl::Status Finish() { return assembler_.Finish(trailer_); }
  const v1::PayloadTrailer& Digest() { return assembler_.Digest(); }

 private:
  absl::Status TakeParts(bool has_header, const v1::PayloadTrailer* trailer, const wire::FrameData& data);

  FrameAssembler assembler_;
  bool started_ = false;
  bool has_trailer_ = false;
  v1::PayloadTrailer trailer_;
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_TENSOR_FRAMES_H_
