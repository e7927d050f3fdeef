// Assembling the frames of a stream's payload into tensors, whatever a peer sends.
#ifndef KEVAL_SERVER_TENSOR_FRAMES_H_
#define KEVAL_SERVER_TENSOR_FRAMES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace keval::server {

inline constexpr std::int64_t kMaxFrameBytes = std::int64_t{4} << 20;
// What this side sends: the size that loopback measurements favour.
inline constexpr std::int64_t kSentFrameBytes = std::int64_t{1} << 20;

// One tensor's place in the payload. `name` is the field that a refusal names.
struct PayloadSegment {
  std::string name;
  std::byte* data = nullptr;
  std::int64_t size = 0;
};

// The payload is the segments' concatenation; see proto/keval/v1/tensor.proto. Does not own the memory. Not
// thread-safe.
class FrameAssembler {
 public:
  // `on_complete` is called with a segment's index once its last byte is in (for an empty one: when the one before it
  // is complete); its error becomes Add's or Finish's.
  using OnComplete = std::function<absl::Status(std::size_t segment)>;
  explicit FrameAssembler(std::vector<PayloadSegment> segments, OnComplete on_complete = {});

  // INVALID_ARGUMENT: `offset` isn't where the payload stands; `data` is larger than a frame may be, goes beyond the
  // payload, or reaches over two tensors. Nothing is copied then.
  absl::Status Add(std::uint64_t offset, absl::string_view data);

  // INVALID_ARGUMENT naming the first tensor that lacks bytes; or, `sha256` given, (field "sha256") where it isn't the
  // payload's: 32 bytes.
  absl::Status Finish(absl::string_view sha256);

  // Of the whole payload; REQUIRES that Finish has succeeded.
  std::string Sha256() const;

 private:
  absl::Status AdvanceOverComplete();

  const std::vector<PayloadSegment> segments_;
  const OnComplete on_complete_;
  std::int64_t total_ = 0;
  std::int64_t received_ = 0;
  std::size_t segment_ = 0;  // The first that is not complete.
  std::int64_t segment_received_ = 0;
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_TENSOR_FRAMES_H_
