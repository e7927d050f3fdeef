// Calls to a real server through plain generated stubs, as any gRPC client would make them.
#ifndef KEVAL_TESTS_INTEGRATION_SERVER_CALLS_H_
#define KEVAL_TESTS_INTEGRATION_SERVER_CALLS_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "keval/v1/error.pb.h"
#include "keval/v1/linear_logp.grpc.pb.h"
#include "tests/support/linear_logp_cases.h"

namespace keval::test_support {

std::shared_ptr<grpc::Channel> Connect(const std::string& address);

// What a call said beside its code.
v1::ErrorDetail DetailOf(const grpc::ClientContext& context);

// `values` as contiguous bytes of `dtype`; exact for the cases' values, which are exact in bfloat16.
std::string Encode(const std::vector<double>& values, DType dtype);
std::vector<double> Decode(const std::string& bytes, v1::DataType dtype);

// The case as a unary request with its bytes inline; targets are int64.
v1::GradientRequest UnaryRequest(const LinearLogpCase& test, DType dtype);

struct GradientResult {
  grpc::Status status;
  v1::ErrorDetail detail;
  v1::GradientResponse response;  // With bytes, however they travelled.
  int frames_written = 0;
};

GradientResult CallUnary(v1::LinearLogpService::Stub* stub, const v1::GradientRequest& request);

// The same request as a stream: its bytes are taken out of the header, sent in frames of `frame_bytes` in the stated
// order, and everything is written before anything is read.
GradientResult CallStream(v1::LinearLogpService::Stub* stub, const v1::GradientRequest& request,
                          std::int64_t frame_bytes = std::int64_t{1} << 20);

}  // namespace keval::test_support

#endif  // KEVAL_TESTS_INTEGRATION_SERVER_CALLS_H_
