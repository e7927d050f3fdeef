#include "server/tensor_frames.h"

#include <cstring>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/field_error.h"

namespace keval::server {

FrameAssembler::FrameAssembler(std::vector<PayloadSegment> segments, OnComplete on_complete, v1::PayloadDigest digest)
    : segments_(std::move(segments)), on_complete_(std::move(on_complete)) {
  bool kept = true;
  for (const PayloadSegment& segment : segments_) {
    total_ += segment.size;
    kept = kept && !segment.sink;
  }
  const bool wanted_later = digest != v1::PAYLOAD_DIGEST_XXH3 && digest != v1::PAYLOAD_DIGEST_NONE;
  if (!kept || !wanted_later) running_.emplace(digest);
}

absl::Status FrameAssembler::Add(std::uint64_t offset, absl::Span<const absl::string_view> pieces) {
  std::int64_t size = 0;  // Can't overflow: the pieces are one received message.
  for (const absl::string_view piece : pieces) size += static_cast<std::int64_t>(piece.size());
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
  std::byte* to = segment.data == nullptr ? nullptr : segment.data + segment_received_;
  for (const absl::string_view piece : pieces) {
    if (running_.has_value()) running_->Update(piece.data(), piece.size());
    if (segment.sink) {
      if (absl::Status status = segment.sink(piece); !status.ok()) return status;
      continue;
    }
    std::memcpy(to, piece.data(), piece.size());
    to += piece.size();
  }
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

absl::Status FrameAssembler::Finish(const v1::PayloadTrailer& trailer) {
  if (absl::Status status = AdvanceOverComplete(); !status.ok()) return status;
  if (segment_ < segments_.size()) {
    return InvalidField(segments_[segment_].name, absl::StrCat(segment_received_, " bytes before the stream's end"),
                        absl::StrCat(segments_[segment_].size, " bytes, as its shape and dtype say"));
  }
  const auto check = [this](const char* field, const std::string& given,
                            const std::string& (v1::PayloadTrailer::*right)() const) -> absl::Status {
    if (given.empty()) return absl::OkStatus();
    const std::string& actual = (Digest().*right)();
    if (given == actual) return absl::OkStatus();
    if (actual.empty()) return InvalidField(field, "given", "the digest that the header announced");
    return InvalidField(field, absl::BytesToHexString(absl::string_view(given).substr(0, 64)),
                        absl::StrCat(absl::BytesToHexString(actual), ", the digest of the bytes received"));
  };
  if (absl::Status status = check("sha256", trailer.sha256(), &v1::PayloadTrailer::sha256); !status.ok()) return status;
  return check("xxh3", trailer.xxh3(), &v1::PayloadTrailer::xxh3);
}

const v1::PayloadTrailer& FrameAssembler::Digest() {
  if (digest_.has_value()) return *digest_;
  if (running_.has_value()) return digest_.emplace(running_->Finish());
  wire::PayloadDigest digest(v1::PAYLOAD_DIGEST_SHA256);
  for (const PayloadSegment& segment : segments_) digest.Update(segment.data, static_cast<std::size_t>(segment.size));
  return digest_.emplace(digest.Finish());
}

absl::Status PayloadReceiver::TakeParts(bool has_header, const v1::PayloadTrailer* trailer,
                                        const wire::FrameData& data) {
  if (has_header && std::exchange(started_, true)) {
    return InvalidField("header", "repeated", "in the first message and only there");
  }
  started_ = true;
  if (has_trailer_) return InvalidField("trailer", "followed by another message", "in the last message");
  if (data.offset != 0 || data.size > 0) {
    if (absl::Status status = assembler_.Add(data.offset, data.pieces); !status.ok()) return status;
  }
  if (trailer == nullptr) return absl::OkStatus();
  has_trailer_ = true;
  trailer_ = *trailer;
  const auto check = [](const char* field, std::size_t size, std::size_t right) {
    return size == 0 || size == right
               ? absl::OkStatus()
               : InvalidField(field, absl::StrCat(size, " bytes"), absl::StrCat(right, " bytes"));
  };
  absl::Status status = check("sha256", trailer_.sha256().size(), 32);
  status.Update(check("xxh3", trailer_.xxh3().size(), 16));
  return status;
}

}  // namespace keval::server
