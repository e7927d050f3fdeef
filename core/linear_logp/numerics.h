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
  friend bool operator==(const Numerics&, const Numerics&) = default;
};

// TF32 and reduced-precision reductions off, no filling of fresh tensors. Called by Engine::Create, and by any program
// that calls variants without an engine, before its first CUDA call: it also sets CUBLAS_WORKSPACE_CONFIG (unless that
// is set), which makes cuBLAS's products the same on every run (C3) and which cuBLAS reads once. LibTorch's
// deterministic mode is off: the variants use no operator whose result depends on the order of its threads (each row
// has one target, so scatter_ writes no element twice), and the mode would turn each scatter_ on CUDA into an
// index_put_ with a sort, some 30 small operators a chunk. Not thread-safe against readers of the environment: call it
// while the process starts.
void SetReproducibleNumerics();

Numerics ReadNumerics();

}  // namespace keval::linear_logp

#endif  // KEVAL_CORE_LINEAR_LOGP_NUMERICS_H_
