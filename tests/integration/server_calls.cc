#include "tests/integration/server_calls.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>

#include "base/sha256.h"
#include "proto/data_type.h"

namespace keval::test_support {
namespace {

template <typename T>
void Append(std::string* bytes, T value) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename T>
T Take(const std::string& bytes, std::size_t index) {
  T value{};
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

double FromHalf(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const double mantissa = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) return mantissa != 0 ? std::nan("") : sign * INFINITY;
  return sign * (exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25));
}

void SetOperand(v1::Operand* operand, DType dtype, const std::vector<std::int64_t>& shape, std::string data) {
  operand->mutable_spec()->set_dtype(ToDataType(dtype));
  for (const std::int64_t size : shape) operand->mutable_spec()->add_shape(size);
  operand->set_data(std::move(data));
}

void SetDeadline(grpc::ClientContext* context) {
  context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
}

}  // namespace

std::shared_ptr<grpc::Channel> Connect(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

v1::ErrorDetail DetailOf(const grpc::ClientContext& context) {
  v1::ErrorDetail detail;
  const auto& metadata = context.GetServerTrailingMetadata();
  const auto it = metadata.find("keval-error-bin");
  if (it != metadata.end()) detail.ParseFromArray(it->second.data(), static_cast<int>(it->second.size()));
  return detail;
}

std::string Encode(const std::vector<double>& values, DType dtype) {
  std::string bytes;
  for (const double value : values) {
    const auto single = static_cast<float>(value);
    switch (dtype) {
      case DType::kFloat64:
        Append(&bytes, value);
        break;
      case DType::kBFloat16:
        Append(&bytes, static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(single) >> 16));
        break;
      default:
        Append(&bytes, single);
        break;
    }
  }
  return bytes;
}

std::vector<double> Decode(const std::string& bytes, v1::DataType dtype) {
  std::vector<double> values;
  const auto size = static_cast<std::size_t>(DTypeSize(ToDType(dtype).value()));
  for (std::size_t i = 0; i < bytes.size() / size; ++i) {
    if (dtype == v1::DATA_TYPE_FLOAT64) {
      values.push_back(Take<double>(bytes, i));
    } else if (dtype == v1::DATA_TYPE_FLOAT32) {
      values.push_back(Take<float>(bytes, i));
    } else if (dtype == v1::DATA_TYPE_BFLOAT16) {
      values.push_back(std::bit_cast<float>(std::uint32_t{Take<std::uint16_t>(bytes, i)} << 16));
    } else {
      values.push_back(FromHalf(Take<std::uint16_t>(bytes, i)));
    }
  }
  return values;
}

v1::GradientRequest UnaryRequest(const LinearLogpCase& test, DType dtype) {
  v1::GradientRequest request;
  v1::LinearLogpInputs* const inputs = request.mutable_inputs();
  const std::int64_t n = test.num_tokens;
  const DType logp = dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  SetOperand(inputs->mutable_hidden(), dtype, {n, test.hidden_size}, Encode(test.hidden, dtype));
  SetOperand(inputs->mutable_weight(), dtype, {test.vocab_size, test.hidden_size}, Encode(test.weight, dtype));
  if (test.bias.has_value()) {
    SetOperand(inputs->mutable_bias(), dtype, {test.vocab_size}, Encode(*test.bias, dtype));
  }
  std::string targets;
  for (const std::int64_t target : test.targets) Append(&targets, target);
  SetOperand(inputs->mutable_targets(), DType::kInt64, {n}, targets);
  SetOperand(inputs->mutable_grad_logp(), logp, {n}, Encode(test.grad_logp, logp));
  return request;
}

GradientResult CallUnary(v1::LinearLogpService::Stub* stub, const v1::GradientRequest& request) {
  GradientResult result;
  grpc::ClientContext context;
  SetDeadline(&context);
  result.status = stub->Gradient(&context, request, &result.response);
  result.detail = DetailOf(context);
  return result;
}

GradientResult CallStream(v1::LinearLogpService::Stub* stub, const v1::GradientRequest& request,
                          std::int64_t frame_bytes) {
  GradientResult result;
  grpc::ClientContext context;
  SetDeadline(&context);
  const auto stream = stub->StreamGradient(&context);

  v1::StreamGradientRequest message;
  *message.mutable_header() = request;
  std::string payload;
  std::vector<std::string> tensors;
  v1::LinearLogpInputs* const inputs = message.mutable_header()->mutable_inputs();
  const auto take = [&](v1::Operand* operand) {
    if (operand->source_case() != v1::Operand::kData) return;
    tensors.push_back(operand->data());
    operand->clear_source();
  };
  if (inputs->has_targets()) take(inputs->mutable_targets());
  if (inputs->has_grad_logp()) take(inputs->mutable_grad_logp());
  if (inputs->has_bias()) take(inputs->mutable_bias());
  if (inputs->has_weight()) take(inputs->mutable_weight());
  if (inputs->has_hidden()) take(inputs->mutable_hidden());
  bool open = stream->Write(message);
  message.Clear();
  Sha256 digest;
  std::uint64_t offset = 0;
  for (const std::string& tensor : tensors) {
    for (std::size_t at = 0; open && at < tensor.size(); at += static_cast<std::size_t>(frame_bytes)) {
      message.set_offset(offset);
      message.set_data(tensor.substr(at, static_cast<std::size_t>(frame_bytes)));
      offset += message.data().size();
      open = stream->Write(message);
      if (open) ++result.frames_written;
    }
    digest.Update(tensor.data(), tensor.size());
  }
  message.Clear();
  message.mutable_trailer()->set_sha256(digest.FinishBytes());
  if (open) stream->Write(message);
  stream->WritesDone();

  v1::StreamGradientResponse answer;
  while (stream->Read(&answer)) {
    if (answer.has_header()) result.response = answer.header();
    payload += answer.data();
    if (!answer.has_done()) continue;
    *result.response.mutable_dispatch() = answer.done().dispatch();
    *result.response.mutable_timing() = answer.done().timing();
    if (answer.done().sha256() != Sha256Bytes(payload)) payload.clear();  // No result then has its bytes.
  }
  result.status = stream->Finish();
  result.detail = DetailOf(context);
  // The payload's parts, in the stated order.
  std::size_t at = 0;
  const auto give = [&](v1::Operand* operand) {
    auto size = static_cast<std::size_t>(DTypeSize(ToDType(operand->spec().dtype()).value()));
    for (const std::int64_t length : operand->spec().shape()) size *= static_cast<std::size_t>(length);
    if (at + size > payload.size()) return;
    operand->set_data(payload.substr(at, size));
    at += size;
  };
  v1::GradientResponse& response = result.response;
  if (response.has_logp()) give(response.mutable_logp());
  if (response.has_grad_hidden()) give(response.mutable_grad_hidden());
  if (response.has_grad_weight()) give(response.mutable_grad_weight());
  if (response.has_grad_bias()) give(response.mutable_grad_bias());
  return result;
}

}  // namespace keval::test_support
