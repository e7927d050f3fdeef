// Element types and autocast as the wire names them, for client, server and tests. Pure functions.
#ifndef KEVAL_PROTO_DATA_TYPE_H_
#define KEVAL_PROTO_DATA_TYPE_H_

#include <optional>

#include "absl/strings/string_view.h"
#include "base/dtype.h"
#include "keval/v1/linear_logp.pb.h"
#include "keval/v1/tensor.pb.h"

namespace keval {

v1::DataType ToDataType(DType dtype);

// nullopt for DATA_TYPE_UNSPECIFIED, and for a number that this build has no name for.
std::optional<DType> ToDType(v1::DataType type);

// "none", "bfloat16", "float16", as specs, worker messages and refusals write it; "none" for a number without a name.
absl::string_view AutocastName(v1::Autocast autocast);

}  // namespace keval

#endif  // KEVAL_PROTO_DATA_TYPE_H_
