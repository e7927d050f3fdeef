// LibTorch's process-wide switches that decide what a float32 product is.
#ifndef KEVAL_CORE_LINEAR_LOGP_NUMERICS_H_
#define KEVAL_CORE_LINEAR_LOGP_NUMERICS_H_

namespace keval::linear_logp {

// As LibTorch reports them, for a report's environment.
struct Numerics {
  bool tf32_matmul = false;
  bool tf32_convolution = false;
  bool reduced_precision_float16 = false;
  bool reduced_precision_bfloat16 = false;
  bool deterministic = false;
  bool fill_uninitialized = false;
};

// TF32 and reduced-precision reductions off, deterministic algorithms on, no filling of fresh tensors. Called by
// Engine::Create, and by any program that calls variants without an engine, before its first CUDA call: it also sets
// CUBLAS_WORKSPACE_CONFIG (unless that is set), which deterministic mode demands and cuBLAS reads once. Not thread-safe
// against readers of the environment: call it while the process starts.
void SetReproducibleNumerics();

Numerics ReadNumerics();

}  // namespace keval::linear_logp

#endif  // KEVAL_CORE_LINEAR_LOGP_NUMERICS_H_
