#include "server/tensor_frames.h"

#include <cstring>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "base/sha256.h"

namespace keval::server {

FrameAssembler::FrameAssembler(std::vector<PayloadSegment> segments, OnComplete on_complete)
    : segments_(std::move(segments)), on_complete_(std::move(on_complete)) {
  for (const PayloadSegment& segment : segments_) total_ += segment.size;
}

absl::Status FrameAssembler::Add(std::uint64_t offset, absl::string_view data) {
  const auto size = static_cast<std::int64_t>(data.size());
  if (size > kMaxFrameBytes) {
    return InvalidField("data", absl::StrCat(size, " bytes"),
                        absl::StrCat("at most ", kMaxFrameBytes, " bytes a frame"));
  }
  if (offset != static_cast<std::uint64_t>(received_)) {
    return InvalidField("offset", absl::StrCat(offset),
                        absl::StrCat(received_, ": frames come in order, without gaps or overlaps"));
  }
  if (size > total_ - received_) {
    return InvalidField("data", absl::StrCat(size, " bytes at offset ", received_),
                        absl::StrCat("within the ", total_, " bytes that the header declares"));
  }
  if (absl::Status status = AdvanceOverComplete(); !status.ok()) return status;
  if (size == 0) return absl::OkStatus();
  const PayloadSegment& segment = segments_[segment_];
  if (size > segment.size - segment_received_) {
    return InvalidField("data", absl::StrCat(size, " bytes at offset ", received_),
                        absl::StrCat("within one tensor: ", segment.name, " ends after ",
                                     segment.size - segment_received_, " of them"));
  }
  std::memcpy(segment.data + segment_received_, data.data(), data.size());
  received_ += size;
  segment_received_ += size;
  return AdvanceOverComplete();
}

absl::Status FrameAssembler::AdvanceOverComplete() {
  while (segment_ < segments_.size() && segment_received_ == segments_[segment_].size) {
    const std::size_t complete = segment_++;
    segment_received_ = 0;
    if (!on_complete_) continue;
    if (absl::Status status = on_complete_(complete); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status FrameAssembler::Finish(absl::string_view sha256) {
  if (absl::Status status = AdvanceOverComplete(); !status.ok()) return status;
  if (segment_ < segments_.size()) {
    return InvalidField(segments_[segment_].name, absl::StrCat(segment_received_, " bytes before the stream's end"),
                        absl::StrCat(segments_[segment_].size, " bytes, as its shape and dtype say"));
  }
  if (sha256.empty()) return absl::OkStatus();
  const std::string actual = Sha256();
  if (absl::string_view(actual) != sha256) {
    return InvalidField("sha256", absl::BytesToHexString(sha256.substr(0, 64)),
                        absl::StrCat(absl::BytesToHexString(actual), ", the digest of the bytes received"));
  }
  return absl::OkStatus();
}

std::string FrameAssembler::Sha256() const {
  keval::Sha256 digest;
  for (const PayloadSegment& segment : segments_) digest.Update(segment.data, static_cast<std::size_t>(segment.size));
  return digest.FinishBytes();
}

}  // namespace keval::server
