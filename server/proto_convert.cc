#include "server/proto_convert.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/field_error.h"
#include "proto/data_type.h"

namespace keval::server {

absl::StatusOr<DType> FromProto(absl::string_view field, v1::DataType dtype) {
  const std::optional<DType> known = ToDType(dtype);
  if (known.has_value()) return *known;
  return InvalidField(field, absl::StrCat("dtype ", static_cast<int>(dtype)),
                      "float32, float64, bfloat16, float16, int32 or int64");
}

v1::TensorSpec ToProto(const TensorSpec& spec) {
  v1::TensorSpec proto;
  proto.set_dtype(ToDataType(spec.dtype));
  proto.mutable_shape()->Add(spec.shape.begin(), spec.shape.end());
  return proto;
}

absl::StatusOr<TensorSpec> FromProto(absl::string_view field, const v1::TensorSpec& spec) {
  absl::StatusOr<DType> dtype = FromProto(field, spec.dtype());
  if (!dtype.ok()) return dtype.status();
  // Looked at before it is copied: a message has room for a quarter of a million dimensions.
  const absl::StatusOr<std::int64_t> elements = NumElements(field, spec.shape());
  if (!elements.ok()) return elements.status();
  TensorSpec result{*dtype, {spec.shape().begin(), spec.shape().end()}};
  if (absl::StatusOr<std::int64_t> bytes = NumBytes(field, result); !bytes.ok()) return bytes.status();
  return result;
}

absl::StatusOr<linear_logp::Options> FromProto(const v1::LinearLogpOptions& options) {
  linear_logp::Options result;
  if (!options.variant().empty()) result.variant = options.variant();
  switch (options.autocast()) {
    case v1::AUTOCAST_UNSPECIFIED:
    case v1::AUTOCAST_NONE:
      break;
    case v1::AUTOCAST_BFLOAT16:
      result.autocast = linear_logp::Autocast::kBFloat16;
      break;
    case v1::AUTOCAST_FLOAT16:
      result.autocast = linear_logp::Autocast::kFloat16;
      break;
    default:
      return InvalidField("autocast", absl::StrCat(static_cast<int>(options.autocast())), "none, bfloat16 or float16");
  }
  switch (options.grad_dtype()) {
    case v1::GRAD_DTYPE_UNSPECIFIED:
    case v1::GRAD_DTYPE_INPUT:
      break;
    case v1::GRAD_DTYPE_FLOAT32:
      result.grad_dtype = linear_logp::GradDtype::kFloat32;
      break;
    default:
      return InvalidField("grad_dtype", absl::StrCat(static_cast<int>(options.grad_dtype())), "input or float32");
  }
  if (options.chunk_elems() < 0) {
    return InvalidField("chunk_elems", absl::StrCat(options.chunk_elems()), "positive, or 0 for the default");
  }
  if (options.chunk_elems() > 0) result.chunk_elems = options.chunk_elems();
  result.force_variant = options.force_variant();
  return result;
}

v1::Dispatch ToProto(const linear_logp::Dispatch& dispatch) {
  v1::Dispatch proto;
  proto.set_requested_variant(dispatch.requested_variant);
  proto.set_variant(dispatch.variant);
  proto.set_path(dispatch.path);
  proto.set_reason(dispatch.reason);
  proto.set_fallback(dispatch.fallback);
  proto.set_chunk_tokens(dispatch.chunk_tokens);
  proto.set_chunks(dispatch.chunks);
  return proto;
}

v1::Timing ToProto(const Executor::Timing& timing) {
  v1::Timing proto;
  proto.set_queue_ns(timing.queue_ns);
  proto.set_compute_ns(timing.compute_ns);
  return proto;
}

v1::TensorInfo ToProto(const StoredTensor& tensor) {
  v1::TensorInfo proto;
  proto.set_handle(tensor.handle);
  *proto.mutable_spec() = ToProto(tensor.spec);
  proto.set_size_bytes(tensor.buffer->size());
  proto.set_sha256(tensor.digests.sha256);
  proto.set_xxh3(tensor.digests.xxh3);
  proto.set_expire_time_unix_ms(absl::ToUnixMillis(tensor.expires));
  return proto;
}

v1::GradientSession ToProto(const StoredSession& stored) {
  const GradientSession& session = *stored.session;
  const GradientSession::Progress progress = session.progress();
  v1::GradientSession proto;
  proto.set_session(stored.name);
  proto.set_device(session.head().device->name);
  *proto.mutable_weight() = ToProto(session.head().weight);
  if (session.head().bias.has_value()) *proto.mutable_bias() = ToProto(*session.head().bias);
  proto.set_batches(progress.batches);
  proto.set_num_tokens(progress.num_tokens);
  proto.set_sequence(progress.sequence);
  proto.set_size_bytes(session.bytes());
  proto.set_expire_time_unix_ms(absl::ToUnixMillis(stored.expires));
  return proto;
}

v1::DeviceInfo ToProto(const linear_logp::DeviceDescription& device) {
  v1::DeviceInfo proto;
  proto.set_name(device.device.cuda ? absl::StrCat("cuda:", device.device.index) : std::string("cpu"));
  proto.set_model(device.model);
  proto.set_uuid(device.uuid);
  proto.set_compute_capability(device.compute_capability);
  proto.set_memory_bytes(device.memory_bytes);
  proto.set_free_bytes(device.free_bytes);
  return proto;
}

v1::VariantInfo ToProto(const linear_logp::VariantDescription& variant) {
  v1::VariantInfo proto;
  proto.set_name(variant.name);
  proto.set_description(variant.description);
  proto.set_exact_target(variant.exact_target);
  if (variant.cpu) proto.add_devices("cpu");
  if (variant.cuda) proto.add_devices("cuda");
  return proto;
}

std::string SpecText(const TensorSpec& spec) {
  return absl::StrCat(ShapeText(spec.shape), " x ", DTypeName(spec.dtype));
}

}  // namespace keval::server
