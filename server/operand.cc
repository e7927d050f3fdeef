#include "server/operand.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "base/shape.h"
#include "server/proto_convert.h"

namespace keval::server {

absl::StatusOr<ParsedOperand> ParseOperand(absl::string_view field, const v1::Operand& operand,
                                           absl::string_view principal, Entrance entrance, TensorStore* tensors) {
  ParsedOperand parsed;
  if (operand.source_case() == v1::Operand::kHandle) {
    absl::StatusOr<StoredTensor> stored = tensors->Find(principal, operand.handle());
    if (!stored.ok()) {
      return WithField(absl::Status(stored.status().code(), absl::StrCat(field, ".", stored.status().message())),
                       {absl::StrCat(field, ".handle"), operand.handle().substr(0, 64), ""});
    }
    if (operand.has_spec()) {
      absl::StatusOr<TensorSpec> spec = FromProto(field, operand.spec());
      if (!spec.ok()) return spec.status();
      if (*spec != stored->spec) {
        return InvalidField(field, SpecText(*spec), absl::StrCat(SpecText(stored->spec), ", as the stored tensor is"));
      }
    }
    parsed.tensor = {stored->spec, stored->buffer->data(), stored->buffer};
    parsed.bytes = stored->buffer->size();
    return parsed;
  }
  if (!operand.has_spec()) return InvalidField(field, "no spec", "given with dtype and shape");
  absl::StatusOr<TensorSpec> spec = FromProto(field, operand.spec());
  if (!spec.ok()) return spec.status();
  absl::StatusOr<std::int64_t> bytes = NumBytes(field, *spec);
  if (!bytes.ok()) return bytes.status();
  parsed.tensor.spec = *std::move(spec);
  parsed.bytes = *bytes;
  if (entrance == Entrance::kStream && operand.source_case() == v1::Operand::SOURCE_NOT_SET) {
    parsed.awaited = true;
  } else {
    parsed.is_inline = true;
    parsed.inline_data = operand.data();
  }
  return parsed;
}

absl::Status CheckInlineBytes(absl::string_view field, const ParsedOperand& operand) {
  if (!operand.is_inline || static_cast<std::int64_t>(operand.inline_data.size()) == operand.bytes) {
    return absl::OkStatus();
  }
  return InvalidField(field, absl::StrCat(operand.inline_data.size(), " bytes"),
                      absl::StrCat(operand.bytes, " bytes for ", SpecText(operand.tensor.spec)));
}

}  // namespace keval::server
