// portable_addmm, the addmm proposal's candidate: P6.
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/linear_logp/builtin_variants.h"
#include "core/linear_logp/portable.h"

namespace keval::linear_logp {
namespace {

std::string FallbackReason(absl::string_view why) {
  return absl::StrCat("fallback to ", kMatmulThenAddPath, ": ", why);
}

class PortableAddmm final : public Variant {
 public:
  VariantDescription Describe() const override {
    return {.name = "portable_addmm",
            .description = "as portable_matmul_add; each chunk's weight gradient is accumulated in place by addmm_",
            .cpu = true,
            .cuda = true,
            .production_path = ProductionPath::kAddmm,
            .takes_chunks = true};
  }

  Support Supports(const Problem& problem, const Options& options, const Device& device) const override {
    Support support = SupportsAtenVariant(problem, device);
    if (!support.supported || !problem.has_grad_logp) return support;
    if (problem.dtype == DType::kFloat64) {
      support = {true, FallbackReason("an operand isn't float32"), true};
    } else if (options.autocast != Autocast::kNone) {
      support = {true, FallbackReason("autocast is on"), true};
    }
    return support;
  }

  std::int64_t ScratchBytes(const Problem& problem, const Options& options, Want want) const override {
    return PortableScratchBytes(problem, options, want);
  }

  at::Tensor Forward(const VariantInputs& inputs, const Options& options, const ContinueCheck& check,
                     Dispatch* dispatch) const override {
    NameForward(dispatch);
    return PortableForward(inputs, options, check, dispatch);
  }

  Gradients Backward(const VariantInputs& inputs, const Options& options, Want want, const ContinueCheck& check,
                     Dispatch* dispatch) const override {
    NameNoWeightGradient(dispatch);
    return PortableBackward(inputs, options, want, check, Update(dispatch), dispatch);
  }

  ChunkResult Chunk(const VariantInputs& chunk, const Options& options, Want want, GradientTables* tables,
                    Dispatch* dispatch) const override {
    if (chunk.grad_logp.defined()) {
      NameNoWeightGradient(dispatch);
    } else {
      NameForward(dispatch);
    }
    return PortableChunk(chunk, options, want, Update(dispatch), tables);
  }

 private:
  static void NameForward(Dispatch* dispatch) { Name(dispatch, kForwardPath, "the variant's only path", false); }
  static void NameNoWeightGradient(Dispatch* dispatch) {
    Name(dispatch, "no weight gradient", "no chunk had a weight gradient to add", false);
  }

  static UpdateTable Update(Dispatch* dispatch) {
    return [dispatch](at::Tensor& table, const at::Tensor& left, const at::Tensor& right) {
      const char* why_not = WhyNotInPlace(left, right);
      if (why_not == nullptr) {
        Name(dispatch, kAddmmInPlacePath, "both operands are float32 and autocast is off", false);
        table.addmm_(left, right);
      } else {
        Name(dispatch, kMatmulThenAddPath, FallbackReason(why_not), true);
        MatmulThenAdd(table, left, right);
      }
    };
  }

  // What ran, told by the code that ran it.
  static void Name(Dispatch* dispatch, const char* path, const std::string& reason, bool fallback) {
    if (dispatch == nullptr) return;
    dispatch->variant = "portable_addmm";
    dispatch->path = path;
    dispatch->reason = reason;
    dispatch->fallback = fallback;
  }
};

}  // namespace

std::unique_ptr<Variant> MakePortableAddmm() { return std::make_unique<PortableAddmm>(); }

}  // namespace keval::linear_logp
