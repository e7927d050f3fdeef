#include "wire/slices.h"

#include <array>
#include <atomic>
#include <memory>
#include <utility>

namespace keval::wire {
namespace {

// What keeps a slice's memory. gRPC passes it from the thread that made it to the one that lets go of it under its own
// locks; `made` says that order once more where ThreadSanitizer sees it, which the packaged library's locks don't.
struct Owner {
  explicit Owner(std::shared_ptr<const void> owner) : memory(std::move(owner)) {
    made.store(true, std::memory_order_release);
  }
  std::shared_ptr<const void> memory;
  std::atomic<bool> made = false;
};

// gRPC's callback for a slice that nothing refers to any more. It may run on any thread, after the call has ended.
void LetGo(void* pointer) {
  const std::unique_ptr<Owner> owner(static_cast<Owner*>(pointer));
  static_cast<void>(owner->made.load(std::memory_order_acquire));
}

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
