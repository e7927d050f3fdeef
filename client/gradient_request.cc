#include "client/gradient_request.h"

#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "base/sha256.h"
#include "base/shape.h"
#include "proto/data_type.h"

namespace keval {
namespace {

// Row-major without gaps. Dimensions of one element may have any stride; so may all where there is no element.
bool IsContiguous(const TensorView& view) {
  if (view.strides.empty()) return true;
  std::int64_t expected = 1;
  for (std::size_t i = view.shape.size(); i-- > 0;) {
    if (view.shape[i] == 0) return true;
    if (view.shape[i] != 1 && view.strides[i] != expected) return false;
    expected *= view.shape[i];
  }
  return true;
}

struct NamedOperand {
  absl::string_view name;
  const Operand* operand;
  v1::Operand* (v1::LinearLogpInputs::*field)();
};

// In the order of a stream's payload.
std::array<NamedOperand, 5> Operands(const GradientParams& params) {
  return {{{"targets", &params.targets, &v1::LinearLogpInputs::mutable_targets},
           {"grad_logp", &params.grad_logp, &v1::LinearLogpInputs::mutable_grad_logp},
           {"bias", &params.bias, &v1::LinearLogpInputs::mutable_bias},
           {"weight", &params.weight, &v1::LinearLogpInputs::mutable_weight},
           {"hidden", &params.hidden, &v1::LinearLogpInputs::mutable_hidden}}};
}

struct ResultTensor {
  absl::string_view name;
  bool present;
  const v1::Operand& operand;
};

std::array<ResultTensor, 4> ResultTensors(const v1::GradientResponse& response) {
  return {{{"logp", response.has_logp(), response.logp()},
           {"grad_hidden", response.has_grad_hidden(), response.grad_hidden()},
           {"grad_weight", response.has_grad_weight(), response.grad_weight()},
           {"grad_bias", response.has_grad_bias(), response.grad_bias()}}};
}

Tensor& Slot(absl::string_view name, GradientResult* result) {
  if (name == "logp") return result->logp;
  if (name == "grad_hidden") return result->grad_hidden.emplace();
  if (name == "grad_weight") return result->grad_weight.emplace();
  return result->grad_bias.emplace();
}

}  // namespace

v1::TensorSpec ToProto(const TensorView& view) {
  v1::TensorSpec spec;
  spec.set_dtype(ToDataType(view.dtype));
  spec.mutable_shape()->Add(view.shape.begin(), view.shape.end());
  return spec;
}

absl::StatusOr<Tensor> AllocateTensor(absl::string_view name, const v1::TensorSpec& spec) {
  const std::optional<DType> dtype = ToDType(spec.dtype());
  if (!dtype.has_value()) {
    return absl::DataLossError(
        absl::StrCat("the server's ", name, " has an element type that this client doesn't know"));
  }
  return Tensor::Allocate(name, *dtype, {spec.shape().begin(), spec.shape().end()});
}

absl::StatusOr<ConstBytes> Contiguous(absl::string_view name, const TensorView& view, std::deque<Tensor>* copies) {
  const auto bytes = NumBytes(name, {view.dtype, view.shape});
  if (!bytes.ok()) return bytes.status();
  const bool ranks_agree = view.strides.empty() || view.strides.size() == view.shape.size();
  if (!ranks_agree || !IsContiguous(view)) {
    auto copy = Tensor::Copy(name, view);
    if (!copy.ok()) return copy.status();
    copies->push_back(*std::move(copy));
    return copies->back().bytes();
  }
  if (*bytes > 0 && view.data == nullptr) return InvalidField(name, "a null pointer", "memory that holds the elements");
  return ConstBytes(static_cast<const std::byte*>(view.data), static_cast<std::size_t>(*bytes));
}

absl::StatusOr<PreparedGradient> PrepareGradient(const GradientParams& params) {
  PreparedGradient prepared;
  *prepared.header.mutable_options() = params.options;
  for (const v1::Want want : params.want) prepared.header.add_want(want);
  const bool in_session = !params.session.empty();
  if (in_session) {
    prepared.header.mutable_session_batch()->set_session(params.session);
    prepared.header.mutable_session_batch()->set_batch_id(
        params.batch_id.empty() ? absl::HexStringToBytes(RandomHex128()) : params.batch_id);
  }
  for (const auto& [name, operand, field] : Operands(params)) {
    // A session has the weight, and nothing to add without an upstream.
    const bool optional = name == "bias" || name == (in_session ? "weight" : "grad_logp");
    if (!operand->given()) {
      if (optional) continue;
      return InvalidField(name, "what is left out", "given");
    }
    v1::Operand* const message = (prepared.header.mutable_inputs()->*field)();
    if (!operand->handle().empty()) {
      message->set_handle(operand->handle());
      prepared.has_handles = true;
      continue;
    }
    *message->mutable_spec() = ToProto(operand->view());
    const auto bytes = Contiguous(name, operand->view(), &prepared.copies);
    if (!bytes.ok()) return bytes.status();
    prepared.payload.push_back(*bytes);
    prepared.payload_bytes += static_cast<std::int64_t>(bytes->size());
  }
  const bool widened = params.options.grad_dtype() == v1::GRAD_DTYPE_FLOAT32;
  prepared.answer_bytes = (widened ? 2 : 1) * prepared.payload_bytes;
  return prepared;
}

v1::GradientRequest WithBytes(const PreparedGradient& prepared) {
  v1::GradientRequest request = prepared.header;
  v1::LinearLogpInputs* const inputs = request.mutable_inputs();
  std::size_t next = 0;
  const auto fill = [&](bool has, v1::Operand* (v1::LinearLogpInputs::*field)()) {
    if (!has || !(inputs->*field)()->handle().empty()) return;
    const ConstBytes bytes = prepared.payload[next++];
    (inputs->*field)()->set_data(bytes.data(), bytes.size());
  };
  fill(inputs->has_targets(), &v1::LinearLogpInputs::mutable_targets);
  fill(inputs->has_grad_logp(), &v1::LinearLogpInputs::mutable_grad_logp);
  fill(inputs->has_bias(), &v1::LinearLogpInputs::mutable_bias);
  fill(inputs->has_weight(), &v1::LinearLogpInputs::mutable_weight);
  fill(inputs->has_hidden(), &v1::LinearLogpInputs::mutable_hidden);
  return request;
}

absl::StatusOr<std::vector<MutableBytes>> AllocateResult(const v1::GradientResponse& header, GradientResult* result) {
  std::vector<MutableBytes> memory;
  for (const auto& [name, present, operand] : ResultTensors(header)) {
    if (!present) continue;
    auto tensor = AllocateTensor(name, operand.spec());
    if (!tensor.ok()) return tensor.status();
    Tensor& slot = Slot(name, result);
    slot = *std::move(tensor);
    memory.push_back(slot.mutable_bytes());
  }
  return memory;
}

absl::StatusOr<GradientResult> FromResponse(const v1::GradientResponse& response) {
  GradientResult result;
  const auto memory = AllocateResult(response, &result);
  if (!memory.ok()) return memory.status();
  auto to = memory->begin();
  for (const auto& [name, present, operand] : ResultTensors(response)) {
    if (!present) continue;
    if (operand.data().size() != to->size()) {
      return absl::DataLossError(
          absl::StrCat("the server sent ", operand.data().size(), " bytes of ", name, ", not ", to->size()));
    }
    if (!to->empty()) std::memcpy(to->data(), operand.data().data(), to->size());
    ++to;
  }
  result.dispatch = response.dispatch();
  result.timing = response.timing();
  result.session_batch = response.session_batch();
  return result;
}

}  // namespace keval
