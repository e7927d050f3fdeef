#include "core/linear_logp/numerics.h"

#include <ATen/Context.h>

#include <cstdlib>

namespace keval::linear_logp {

// The older setters alone: after the newer per-backend ones the older getters throw.
void SetReproducibleNumerics() {
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  at::Context& context = at::globalContext();
  context.setAllowTF32CuBLAS(false);
  context.setAllowTF32CuDNN(false);
  context.setAllowFP16ReductionCuBLAS(false);
  context.setAllowBF16ReductionCuBLAS(false);
  context.setDeterministicAlgorithms(false, /*warn_only=*/false);  // Why: numerics.h.
  context.setDeterministicFillUninitializedMemory(false);          // It would write every fresh tensor twice.
}

Numerics ReadNumerics() {
  const at::Context& context = at::globalContext();
  return {.tf32_matmul = context.allowTF32CuBLAS(),
          .tf32_convolution = context.allowTF32CuDNN(),
          .reduced_precision_float16 =
              context.allowFP16ReductionCuBLAS() == at::CuBLASReductionOption::AllowReducedPrecisionWithSplitK,
          .reduced_precision_bfloat16 =
              context.allowBF16ReductionCuBLAS() == at::CuBLASReductionOption::AllowReducedPrecisionWithSplitK,
          .deterministic = context.deterministicAlgorithms(),
          .fill_uninitialized = context.deterministicFillUninitializedMemory()};
}

}  // namespace keval::linear_logp
