#include "core/linear_logp/host_tensor.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

namespace keval::linear_logp {
namespace {

constexpr std::uintptr_t kAlignment = 64;  // What c10's CPU allocator gives.

DType KevalType(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return DType::kFloat32;
    case at::kDouble:
      return DType::kFloat64;
    case at::kBFloat16:
      return DType::kBFloat16;
    case at::kHalf:
      return DType::kFloat16;
    case at::kInt:
      return DType::kInt32;
    case at::kLong:
      return DType::kInt64;
    default:
      TORCH_CHECK(false, "a tensor of no dtype that travels");
  }
}

// from_blob takes memory that it may write to; nothing writes to an input.
void* Writable(const std::byte* data) { return const_cast<std::byte*>(data); }  // NOLINT(*-const-cast)

}  // namespace

at::ScalarType TorchType(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return at::kFloat;
    case DType::kFloat64:
      return at::kDouble;
    case DType::kBFloat16:
      return at::kBFloat16;
    case DType::kFloat16:
      return at::kHalf;
    case DType::kInt32:
      return at::kInt;
    case DType::kInt64:
      return at::kLong;
  }
  return at::kFloat;  // Unreachable: the switch names every enumerator.
}

at::Tensor ToDevice(const HostTensor& tensor, const std::vector<std::int64_t>& shape, c10::Device device) {
  const at::TensorOptions options = at::TensorOptions().dtype(TorchType(tensor.spec.dtype));
  std::int64_t elements = 1;
  for (const std::int64_t dimension : shape) elements *= dimension;
  if (elements == 0) return at::empty(shape, options.device(device));
  at::Tensor host;
  if (reinterpret_cast<std::uintptr_t>(tensor.data) % kAlignment == 0) {  // NOLINT(*-reinterpret-cast)
    host = at::from_blob(Writable(tensor.data), shape, options);
  } else {
    host = at::empty(shape, options);
    std::memcpy(host.mutable_data_ptr(), tensor.data,
                static_cast<std::size_t>(elements * DTypeSize(tensor.spec.dtype)));
  }
  return host.to(device);
}

HostTensor ToHost(const at::Tensor& tensor, std::vector<std::int64_t> shape) {
  auto host = std::make_shared<at::Tensor>(tensor.to(at::kCPU).contiguous());
  HostTensor result;
  result.spec = {KevalType(host->scalar_type()), std::move(shape)};
  result.data = static_cast<const std::byte*>(host->const_data_ptr());
  result.owner = std::move(host);
  return result;
}

}  // namespace keval::linear_logp
