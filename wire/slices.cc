#include "wire/slices.h"

#include <array>
#include <memory>
#include <utility>

namespace keval::wire {
namespace {

using Owner = std::shared_ptr<const void>;

// gRPC's callback for a slice that nothing refers to any more. It may run on any thread, after the call has ended.
void LetGo(void* owner) { const std::unique_ptr<Owner> end(static_cast<Owner*>(owner)); }

// gRPC never writes into a slice that it sends, but its signature has no const.
grpc::Slice SliceOver(const Payload& payload) {
  auto owner = std::make_unique<Owner>(payload.owner);
  return {const_cast<std::byte*>(payload.bytes.data()), payload.bytes.size(), &LetGo, owner.release()};
}

}  // namespace

grpc::ByteBuffer EncodeMessage(absl::string_view fields, const Payload& payload) {
  const std::string head = EncodeHead(fields, payload);
  std::array<grpc::Slice, 2> slices = {grpc::Slice(head.data(), head.size()), grpc::Slice()};
  if (payload.bytes.empty()) return {slices.data(), 1};
  slices[1] = SliceOver(payload);
  return {slices.data(), slices.size()};
}

absl::Status ParseMessage(grpc::ByteBuffer* buffer, std::vector<grpc::Slice>* slices, FrameData* data,
                          std::string* fields) {
  slices->clear();
  const grpc::Status dumped = buffer->Dump(slices);
  buffer->Clear();
  if (!dumped.ok()) return absl::InvalidArgumentError("the message can't be decompressed");
  std::vector<absl::string_view> pieces;
  pieces.reserve(slices->size());
  for (const grpc::Slice& slice : *slices) {
    pieces.emplace_back(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return ParseFrame(pieces, data, fields);
}

}  // namespace keval::wire
