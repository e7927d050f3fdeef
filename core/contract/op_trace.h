// The torch operators that a call on this thread ran: names, shapes, dtypes and storages. Internal to core/contract.
#ifndef KEVAL_CORE_CONTRACT_OP_TRACE_H_
#define KEVAL_CORE_CONTRACT_OP_TRACE_H_

#include <ATen/record_function.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace keval::contract {

struct TracedTensor {
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  std::vector<std::int64_t> shape;
  const void* storage = nullptr;  // Tells tensors apart while both live; never read through.
};

struct TracedOp {
  std::string name;  // "aten::addmm_".
  std::vector<TracedTensor> inputs;
  std::vector<TracedTensor> outputs;

  // The first output has this shape.
  bool Makes(const std::vector<std::int64_t>& shape) const;
  // The first output has storage that no input has.
  bool Allocates() const;
  // A matrix product, at the level that runs it: mm, addmm, addmm_, bmm, baddbmm, mv, addmv.
  bool IsGemm() const;
};

// In the order in which they began; an operator's inner ones follow it.
using OpList = std::vector<TracedOp>;

std::int64_t CountOps(const OpList& ops, absl::string_view name, const std::vector<std::int64_t>& shape);

// Records into `*ops` while it lives, on the constructing thread. Scopes don't nest.
class OpTraceScope {
 public:
  explicit OpTraceScope(OpList* ops);
  ~OpTraceScope();
  OpTraceScope(const OpTraceScope&) = delete;
  OpTraceScope& operator=(const OpTraceScope&) = delete;

 private:
  at::CallbackHandle handle_;
};

}  // namespace keval::contract

#endif  // KEVAL_CORE_CONTRACT_OP_TRACE_H_
