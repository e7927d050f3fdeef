// What a worker may write into its control channel: whole or byte by byte, the same messages come out.
#include <algorithm>
#include <string>
#include <vector>

#include "google/protobuf/stubs/logging.h"
#include "server/worker/message_channel.h"
#include "server/worker/worker.pb.h"
#include "tests/fuzz/fuzz_target.h"

namespace {

using keval::fuzz::Require;

struct Decoded {
  std::vector<std::string> messages;
  absl::StatusCode end = absl::StatusCode::kOk;
  bool operator==(const Decoded& other) const { return messages == other.messages && end == other.end; }
};

// In pieces of `step` bytes.
Decoded Decode(absl::string_view bytes, std::size_t step) {
  Decoded decoded;
  keval::worker::MessageDecoder decoder;
  while (!bytes.empty()) {
    const absl::string_view piece = bytes.substr(0, step);
    bytes.remove_prefix(piece.size());
    decoder.Append(piece.data(), piece.size());
    keval::worker::Reply reply;
    absl::StatusOr<bool> next = decoder.Next(&reply);
    while (next.ok() && *next) {
      decoded.messages.push_back(reply.ShortDebugString());
      next = decoder.Next(&reply);
    }
    if (!next.ok()) {
      decoded.end = next.status().code();
      return decoded;
    }
  }
  return decoded;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const google::protobuf::LogSilencer silencer;  // Of a line for every text that isn't UTF-8.
  const absl::string_view bytes = keval::fuzz::AsText(data, size);
  const Decoded whole = Decode(bytes, std::max<std::size_t>(1, size));
  Require(whole.end == absl::StatusCode::kOk || whole.end == absl::StatusCode::kDataLoss, "no other error");
  Require(Decode(bytes, 1) == whole, "pieces of one byte say the same");
  Require(Decode(bytes, 7) == whole, "pieces of seven bytes say the same");
  return 0;
}
