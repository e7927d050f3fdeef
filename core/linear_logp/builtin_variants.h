// One maker for each variant of this build; registry.cc calls them in registry order.
#ifndef KEVAL_CORE_LINEAR_LOGP_BUILTIN_VARIANTS_H_
#define KEVAL_CORE_LINEAR_LOGP_BUILTIN_VARIANTS_H_

#include <memory>

#include "core/linear_logp/variant.h"

namespace keval::linear_logp {

std::unique_ptr<Variant> MakePortableMatmulAdd();
std::unique_ptr<Variant> MakePortableAddmm();
std::unique_ptr<Variant> MakeMaterialized();

// Dispatch::path of the two ways into the weight-gradient table.
inline constexpr char kForwardPath[] = "chunked logits";
inline constexpr char kMatmulThenAddPath[] = "matmul, then add";
inline constexpr char kAddmmInPlacePath[] = "addmm_ in place";

}  // namespace keval::linear_logp

#endif  // KEVAL_CORE_LINEAR_LOGP_BUILTIN_VARIANTS_H_
