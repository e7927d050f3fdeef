// portable_matmul_add, the base: P5.
#include <string>

#include "core/linear_logp/builtin_variants.h"
#include "core/linear_logp/portable.h"

namespace keval::linear_logp {
namespace {

class PortableMatmulAdd final : public Variant {
 public:
  VariantDescription Describe() const override {
    return {.name = "portable_matmul_add",
            .description = "chunked, any device; each chunk's weight gradient is a matmul and then an addition",
            .cpu = true,
            .cuda = true,
            .production_path = ProductionPath::kMatmulAdd,
            .takes_chunks = true};
  }

  Support Supports(const Problem& problem, const Options& /*options*/, const Device& device) const override {
    return SupportsAtenVariant(problem, device);
  }

  std::int64_t ScratchBytes(const Problem& problem, const Options& options, Want want) const override {
    return PortableScratchBytes(problem, options, want);
  }

  at::Tensor Forward(const VariantInputs& inputs, const Options& options, const ContinueCheck& check,
                     Dispatch* dispatch) const override {
    Name(dispatch, kForwardPath);
    return PortableForward(inputs, options, check, dispatch);
  }

  Gradients Backward(const VariantInputs& inputs, const Options& options, Want want, const ContinueCheck& check,
                     Dispatch* dispatch) const override {
    Name(dispatch, want.weight ? kMatmulThenAddPath : "no weight gradient");
    return PortableBackward(inputs, options, want, check, MatmulThenAdd, dispatch);
  }

  ChunkResult Chunk(const VariantInputs& chunk, const Options& options, Want want, GradientTables* tables,
                    Dispatch* dispatch) const override {
    Name(dispatch, !chunk.grad_logp.defined() ? kForwardPath : want.weight ? kMatmulThenAddPath : "no weight gradient");
    return PortableChunk(chunk, options, want, MatmulThenAdd, tables);
  }

 private:
  void Name(Dispatch* dispatch, const char* path) const {
    if (dispatch == nullptr) return;
    dispatch->variant = "portable_matmul_add";
    dispatch->path = path;
    dispatch->reason = "the variant's only path";
    dispatch->fallback = false;
  }
};

}  // namespace

std::unique_ptr<Variant> MakePortableMatmulAdd() { return std::make_unique<PortableMatmulAdd>(); }

}  // namespace keval::linear_logp
