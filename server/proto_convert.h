// Between the wire's messages and core's values. Pure functions.
#ifndef KEVAL_SERVER_PROTO_CONVERT_H_
#define KEVAL_SERVER_PROTO_CONVERT_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/shape.h"
#include "core/linear_logp/engine.h"
#include "core/linear_logp/problem.h"
#include "keval/v1/linear_logp.pb.h"
#include "keval/v1/server_info.pb.h"
#include "keval/v1/tensor.pb.h"
#include "server/executor.h"
#include "server/session_store.h"
#include "server/tensor_store.h"

namespace keval::server {

// INVALID_ARGUMENT naming `field` for an unspecified or unknown type.
absl::StatusOr<DType> FromProto(absl::string_view field, v1::DataType dtype);

v1::TensorSpec ToProto(const TensorSpec& spec);
// INVALID_ARGUMENT naming `field`: as NumBytes, and for the dtype.
absl::StatusOr<TensorSpec> FromProto(absl::string_view field, const v1::TensorSpec& spec);

// Defaults filled in. INVALID_ARGUMENT naming chunk_elems, autocast or grad_dtype.
absl::StatusOr<linear_logp::Options> FromProto(const v1::LinearLogpOptions& options);

v1::Dispatch ToProto(const linear_logp::Dispatch& dispatch);
v1::Timing ToProto(const Executor::Timing& timing);
v1::TensorInfo ToProto(const StoredTensor& tensor);
v1::GradientSession ToProto(const StoredSession& stored);
v1::DeviceInfo ToProto(const linear_logp::DeviceDescription& device);
v1::VariantInfo ToProto(const linear_logp::VariantDescription& variant);

// "[4, 8] x float32".
std::string SpecText(const TensorSpec& spec);

}  // namespace keval::server

#endif  // KEVAL_SERVER_PROTO_CONVERT_H_
