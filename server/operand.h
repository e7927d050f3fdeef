// A tensor of a request on its way in: what it is, and where its bytes are.
#ifndef KEVAL_SERVER_OPERAND_H_
#define KEVAL_SERVER_OPERAND_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/linear_logp/engine.h"
#include "keval/v1/linear_logp.pb.h"
#include "server/tensor_store.h"

namespace keval::server {

// How a request came: in one message, where every operand is inline or a handle, or as a stream's header, where one may
// also be awaited.
enum class Entrance : std::uint8_t { kUnary, kStream };

// An operand's spec and, where they are here, its bytes.
struct ParsedOperand {
  linear_logp::HostTensor tensor;  // A stored tensor's has its data and holds it.
  std::int64_t bytes = 0;
  bool awaited = false;
  bool is_inline = false;
  absl::string_view inline_data;  // In the message.
};

// INVALID_ARGUMENT naming `field`: no spec, a bad one, or one that isn't the stored tensor's. NOT_FOUND for a handle.
absl::StatusOr<ParsedOperand> ParseOperand(absl::string_view field, const v1::Operand& operand,
                                           absl::string_view principal, Entrance entrance, TensorStore* tensors);

// INVALID_ARGUMENT naming `field` where inline bytes aren't as many as shape and dtype say; to be asked after the
// shapes themselves were found right, whose refusals say more.
absl::Status CheckInlineBytes(absl::string_view field, const ParsedOperand& operand);

}  // namespace keval::server

#endif  // KEVAL_SERVER_OPERAND_H_
