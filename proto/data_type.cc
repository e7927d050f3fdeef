#include "proto/data_type.h"

namespace keval {

v1::DataType ToDataType(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return v1::DATA_TYPE_FLOAT32;
    case DType::kFloat64:
      return v1::DATA_TYPE_FLOAT64;
    case DType::kBFloat16:
      return v1::DATA_TYPE_BFLOAT16;
    case DType::kFloat16:
      return v1::DATA_TYPE_FLOAT16;
    case DType::kInt32:
      return v1::DATA_TYPE_INT32;
    case DType::kInt64:
      return v1::DATA_TYPE_INT64;
  }
  return v1::DATA_TYPE_UNSPECIFIED;
}

std::optional<DType> ToDType(v1::DataType type) {
  if (type == v1::DATA_TYPE_UNSPECIFIED) return std::nullopt;
  for (const DType dtype :
       {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16, DType::kInt32, DType::kInt64}) {
    if (ToDataType(dtype) == type) return dtype;
  }
  return std::nullopt;
}

absl::string_view AutocastName(v1::Autocast autocast) {
  switch (autocast) {
    case v1::AUTOCAST_BFLOAT16:
      return "bfloat16";
    case v1::AUTOCAST_FLOAT16:
      return "float16";
    default:
      return "none";
  }
}

}  // namespace keval
