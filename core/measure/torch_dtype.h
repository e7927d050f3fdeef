// Our element types as torch's. Only core/ includes this.
#ifndef KEVAL_CORE_MEASURE_TORCH_DTYPE_H_
#define KEVAL_CORE_MEASURE_TORCH_DTYPE_H_

#include <c10/core/ScalarType.h>

#include "base/dtype.h"

namespace keval::measure {

inline c10::ScalarType TorchType(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return c10::ScalarType::Float;
    case DType::kFloat64:
      return c10::ScalarType::Double;
    case DType::kBFloat16:
      return c10::ScalarType::BFloat16;
    case DType::kFloat16:
      return c10::ScalarType::Half;
    case DType::kInt32:
      return c10::ScalarType::Int;
    case DType::kInt64:
      return c10::ScalarType::Long;
  }
  return c10::ScalarType::Undefined;
}

}  // namespace keval::measure

#endif  // KEVAL_CORE_MEASURE_TORCH_DTYPE_H_
