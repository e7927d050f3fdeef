#include "core/contract/op_trace.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>

namespace keval::contract {
namespace {

// torch takes plain functions as callbacks, so that the list is reached through the thread.
thread_local OpList* current_ops = nullptr;

struct OpenOp : at::ObserverContext {
  explicit OpenOp(std::size_t at_index) : index(at_index) {}
  std::size_t index;
};

void AddTensor(const at::Tensor& tensor, std::vector<TracedTensor>* out) {
  if (!tensor.defined()) return;
  const void* storage = tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
  out->push_back({tensor.scalar_type(), tensor.sizes().vec(), storage});
}

template <typename Values>
std::vector<TracedTensor> TensorsOf(const Values& values) {
  std::vector<TracedTensor> tensors;
  for (const c10::IValue& value : values) {
    if (value.isTensor()) {
      AddTensor(value.toTensor(), &tensors);
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) AddTensor(tensor, &tensors);
    }
  }
  return tensors;
}

std::unique_ptr<at::ObserverContext> OnStart(const at::RecordFunction& function) {
  if (current_ops == nullptr) return nullptr;
  current_ops->push_back({function.name(), TensorsOf(function.inputs()), {}});
  return std::make_unique<OpenOp>(current_ops->size() - 1);
}

void OnEnd(const at::RecordFunction& function, at::ObserverContext* context) {
  if (current_ops == nullptr || context == nullptr) return;
  (*current_ops)[static_cast<OpenOp*>(context)->index].outputs = TensorsOf(function.outputs());
}

}  // namespace

bool TracedOp::Makes(const std::vector<std::int64_t>& shape) const {
  return !outputs.empty() && outputs.front().shape == shape;
}

bool TracedOp::Allocates() const {
  return !outputs.empty() && std::none_of(inputs.begin(), inputs.end(), [this](const TracedTensor& input) {
    return input.storage == outputs.front().storage;
  });
}

bool TracedOp::IsGemm() const {
  constexpr std::array<absl::string_view, 7> kGemms = {"aten::mm",      "aten::addmm", "aten::addmm_", "aten::bmm",
                                                       "aten::baddbmm", "aten::mv",    "aten::addmv"};
  return std::find(kGemms.begin(), kGemms.end(), name) != kGemms.end();
}

std::int64_t CountOps(const OpList& ops, absl::string_view name, const std::vector<std::int64_t>& shape) {
  return std::count_if(ops.begin(), ops.end(), [&](const TracedOp& op) { return op.name == name && op.Makes(shape); });
}

OpTraceScope::OpTraceScope(OpList* ops)
    : handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(OnStart, OnEnd)
                                             .needsInputs(true)
                                             .needsOutputs(true)
                                             .scopes({at::RecordScope::FUNCTION}))) {
  current_ops = ops;
}

OpTraceScope::~OpTraceScope() {
  at::removeCallback(handle_);
  current_ops = nullptr;
}

}  // namespace keval::contract
