// Gradients through a real server: every numeric case and every refusal of the contract, by unary call and by stream.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "keval/v1/tensor.grpc.pb.h"
#include "tests/integration/server_calls.h"
#include "tests/support/linear_logp_cases.h"
#include "tests/support/server_process.h"
#include "tests/support/temp_dir.h"

namespace keval {
namespace {

using test_support::CallStream;
using test_support::CallUnary;
using test_support::Connect;
using test_support::Decode;
using test_support::GradientResult;
using test_support::LinearLogpCase;
using test_support::ServerProcess;
using test_support::UnaryRequest;

// Largest magnitude among finite logits, for the contract's tolerances.
double MaxLogit(const LinearLogpCase& test) {
  double most = 1;
  for (std::int64_t n = 0; n < test.num_tokens; ++n) {
    for (std::int64_t v = 0; v < test.vocab_size; ++v) {
      double logit = test.bias.has_value() ? (*test.bias)[static_cast<std::size_t>(v)] : 0;
      for (std::int64_t d = 0; d < test.hidden_size; ++d) {
        logit += test.hidden[static_cast<std::size_t>(n * test.hidden_size + d)] *
                 test.weight[static_cast<std::size_t>(v * test.hidden_size + d)];
      }
      if (std::isfinite(logit)) most = std::max(most, std::abs(logit));
    }
  }
  return most;
}

double MaxFinite(const std::vector<double>& values) {
  double most = 0;
  for (const double value : values) {
    if (std::isfinite(value)) most = std::max(most, std::abs(value));
  }
  return most;
}

// What the contract allows (C2), with the largest value in the place of the summed magnitudes: what is tested here is
// the way through the server; the operator's own tests measure its rounding.
void ExpectNear(const v1::Operand& got, const std::vector<double>& want, double relative, const std::string& what) {
  const std::vector<double> values = Decode(got.data(), got.spec().dtype());
  ASSERT_EQ(values.size(), want.size()) << what;
  const double tolerance = relative * std::max(1.0, MaxFinite(want));
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (std::isfinite(want[i])) {
      EXPECT_NEAR(values[i], want[i], tolerance) << what << " at " << i;
    } else {
      EXPECT_EQ(values[i], want[i]) << what << " at " << i;
    }
  }
}

class ServerGradientTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<testing::TempDir>();
    absl::StatusOr<ServerProcess> started =
        ServerProcess::Start({absl::StrCat(KEVAL_BIN_DIR, "/kevald"), folder_->path(), {}});
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = std::make_unique<ServerProcess>(*std::move(started));
  }
  static void TearDownTestSuite() {
    server_.reset();
    folder_.reset();
  }

  std::unique_ptr<v1::LinearLogpService::Stub> stub_ = v1::LinearLogpService::NewStub(Connect(server_->control()));
  static std::unique_ptr<testing::TempDir> folder_;
  static std::unique_ptr<ServerProcess> server_;
};
std::unique_ptr<testing::TempDir> ServerGradientTest::folder_;
std::unique_ptr<ServerProcess> ServerGradientTest::server_;

TEST_F(ServerGradientTest, EveryCaseIsRightByUnaryAndByStream) {
  const absl::StatusOr<std::vector<LinearLogpCase>> cases = test_support::LoadLinearLogpCases();
  ASSERT_TRUE(cases.ok()) << cases.status();
  ASSERT_FALSE(cases->empty());
  const std::map<DType, double> rounding = {
      {DType::kFloat64, 0}, {DType::kFloat32, std::ldexp(1, -24)}, {DType::kBFloat16, std::ldexp(1, -8)}};
  for (const LinearLogpCase& test : *cases) {
    const double epsilon = 2e-5 + 8 * std::ldexp(1, -24) * MaxLogit(test);
    for (const auto& [dtype, unit] : rounding) {
      const v1::GradientRequest request = UnaryRequest(test, dtype);
      for (const bool stream : {false, true}) {
        const std::string what = absl::StrCat(test.name, " ", DTypeName(dtype), stream ? " stream" : " unary");
        // Frames of 64 bytes, so that each tensor needs several.
        const GradientResult got = stream ? CallStream(stub_.get(), request, 64) : CallUnary(stub_.get(), request);
        ASSERT_TRUE(got.status.ok()) << what << ": " << got.status.error_message();
        ExpectNear(got.response.logp(), test.expected.logp, epsilon, what + " logp");
        ExpectNear(got.response.grad_hidden(), test.expected.grad_hidden, epsilon + unit, what + " grad_hidden");
        ExpectNear(got.response.grad_weight(), test.expected.grad_weight, epsilon + unit, what + " grad_weight");
        ASSERT_EQ(got.response.has_grad_bias(), test.expected.grad_bias.has_value()) << what;
        if (test.expected.grad_bias.has_value()) {
          ExpectNear(got.response.grad_bias(), *test.expected.grad_bias, epsilon + unit, what + " grad_bias");
        }
        EXPECT_EQ(got.response.dispatch().variant(), "portable_addmm") << what;
        EXPECT_FALSE(got.response.dispatch().path().empty()) << what;
        EXPECT_GT(got.response.timing().compute_ns(), 0) << what;
      }
    }
  }
}

// The change that an entry of invalid_inputs.json describes.
void Invalidate(const std::string& name, v1::GradientRequest* request) {
  v1::LinearLogpInputs* const inputs = request->mutable_inputs();
  const auto set_target = [&](std::int64_t value) {
    inputs->mutable_targets()->mutable_data()->replace(0, 8, reinterpret_cast<const char*>(&value), 8);
  };
  const auto reshape = [](v1::Operand* operand, const std::vector<std::int64_t>& shape, std::size_t bytes) {
    operand->mutable_spec()->clear_shape();
    for (const std::int64_t size : shape) operand->mutable_spec()->add_shape(size);
    operand->mutable_data()->resize(bytes);
  };
  const std::int64_t n = inputs->hidden().spec().shape(0);
  const std::int64_t d = inputs->hidden().spec().shape(1);
  const std::int64_t v = inputs->weight().spec().shape(0);
  const std::map<std::string, std::function<void()>> changes = {
      {"target_padding", [&] { set_target(-100); }},
      {"target_minus_three", [&] { set_target(-3); }},
      {"target_is_vocab_size", [&] { set_target(v); }},
      {"hidden_width",
       [&] {
         reshape(inputs->mutable_hidden(), {n, d + 1}, 4 * n * (d + 1));
       }},
      {"targets_length", [&] { reshape(inputs->mutable_targets(), {n + 1}, 8 * (n + 1)); }},
      {"bias_length", [&] { reshape(inputs->mutable_bias(), {v - 1}, 4 * (v - 1)); }},
      {"no_words",
       [&] {
         reshape(inputs->mutable_weight(), {0, d}, 0);
       }},
      {"dtype_mix",
       [&] {
         reshape(inputs->mutable_weight(), {v, d}, 2 * v * d);
         inputs->mutable_weight()->mutable_spec()->set_dtype(v1::DATA_TYPE_BFLOAT16);
       }},
      {"float_targets",
       [&] {
         reshape(inputs->mutable_targets(), {n}, 4 * n);
         inputs->mutable_targets()->mutable_spec()->set_dtype(v1::DATA_TYPE_FLOAT32);
       }},
      {"byte_count", [&] { inputs->mutable_hidden()->mutable_data()->resize(4 * n * d - 4); }},
      {"negative_dim",
       [&] {
         reshape(inputs->mutable_hidden(), {-1, d}, 4 * n * d);
       }},
      {"overflowing_shape",
       [&] {
         reshape(inputs->mutable_hidden(), {std::int64_t{1} << 40, std::int64_t{1} << 40}, 4 * n * d);
       }},
  };
  const auto change = changes.find(name);
  ASSERT_NE(change, changes.end()) << "no change is known for " << name;
  change->second();
}

TEST_F(ServerGradientTest, RefusalsNameFieldValueAndLimitUnaryAndStreamed) {
  const absl::StatusOr<std::vector<test_support::InvalidInput>> inputs = test_support::LoadInvalidInputs();
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  const absl::StatusOr<LinearLogpCase> plain = test_support::LoadLinearLogpCase("linear_logp/plain_bias.json");
  ASSERT_TRUE(plain.ok()) << plain.status();
  for (const test_support::InvalidInput& input : *inputs) {
    v1::GradientRequest request = UnaryRequest(*plain, DType::kFloat32);
    Invalidate(input.name, &request);
    for (const bool stream : {false, true}) {
      const std::string what = absl::StrCat(input.name, stream ? " stream" : " unary");
      const GradientResult got = stream ? CallStream(stub_.get(), request) : CallUnary(stub_.get(), request);
      EXPECT_EQ(got.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT)
          << what << ": " << got.status.error_message();
      // A stream that lacks bytes may also say so of its last frame, which then holds less than `hidden` needs.
      EXPECT_EQ(got.detail.field(), input.field) << what << ": " << got.status.error_message();
      EXPECT_FALSE(got.detail.value().empty()) << what;
      EXPECT_FALSE(got.detail.limit().empty()) << what;
    }
  }
  EXPECT_TRUE(CallUnary(stub_.get(), UnaryRequest(*plain, DType::kFloat32)).status.ok());
}

TEST_F(ServerGradientTest, LeadingShapeIsRestored) {
  const absl::StatusOr<LinearLogpCase> plain = test_support::LoadLinearLogpCase("linear_logp/plain_bias.json");
  ASSERT_TRUE(plain.ok()) << plain.status();
  v1::GradientRequest request = UnaryRequest(*plain, DType::kFloat32);
  const v1::GradientResponse flat = CallUnary(stub_.get(), request).response;
  v1::LinearLogpInputs* const inputs = request.mutable_inputs();
  for (v1::Operand* operand : {inputs->mutable_hidden(), inputs->mutable_targets(), inputs->mutable_grad_logp()}) {
    operand->mutable_spec()->set_shape(0, 3);
    operand->mutable_spec()->add_shape(2);
  }
  inputs->mutable_hidden()->mutable_spec()->set_shape(1, 2);
  inputs->mutable_hidden()->mutable_spec()->set_shape(2, plain->hidden_size);
  const GradientResult got = CallUnary(stub_.get(), request);
  ASSERT_TRUE(got.status.ok()) << got.status.error_message();
  EXPECT_THAT(got.response.logp().spec().shape(), ::testing::ElementsAre(3, 2));
  EXPECT_THAT(got.response.grad_hidden().spec().shape(), ::testing::ElementsAre(3, 2, plain->hidden_size));
  EXPECT_EQ(got.response.logp().data(), flat.logp().data());
  EXPECT_EQ(got.response.grad_hidden().data(), flat.grad_hidden().data());
}

TEST_F(ServerGradientTest, ResidentWeightGivesTheSameBytes) {
  const absl::StatusOr<LinearLogpCase> plain = test_support::LoadLinearLogpCase("linear_logp/plain_bias.json");
  ASSERT_TRUE(plain.ok()) << plain.status();
  v1::GradientRequest request = UnaryRequest(*plain, DType::kBFloat16);
  const v1::GradientResponse whole = CallUnary(stub_.get(), request).response;

  const auto tensors = v1::TensorService::NewStub(Connect(server_->bulk()));
  v1::TensorInfo info;
  grpc::ClientContext put_context;
  const auto writer = tensors->Put(&put_context, &info);
  v1::PutRequest message;
  *message.mutable_header()->mutable_spec() = request.inputs().weight().spec();
  message.set_data(request.inputs().weight().data());
  writer->Write(message);
  writer->WritesDone();
  ASSERT_TRUE(writer->Finish().ok());

  request.mutable_inputs()->mutable_weight()->Clear();
  request.mutable_inputs()->mutable_weight()->set_handle(info.handle());
  for (const bool stream : {false, true}) {
    const GradientResult got = stream ? CallStream(stub_.get(), request) : CallUnary(stub_.get(), request);
    ASSERT_TRUE(got.status.ok()) << got.status.error_message();
    EXPECT_EQ(got.response.grad_hidden().data(), whole.grad_hidden().data());
    EXPECT_EQ(got.response.grad_weight().data(), whole.grad_weight().data());
  }
  grpc::ClientContext delete_context;
  v1::DeleteTensorRequest remove;
  remove.set_handle(info.handle());
  v1::DeleteTensorResponse removed;
  ASSERT_TRUE(tensors->Delete(&delete_context, remove, &removed).ok());
  const GradientResult gone = CallUnary(stub_.get(), request);
  EXPECT_EQ(gone.status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(gone.detail.field(), "weight.handle");
}

TEST_F(ServerGradientTest, NonFiniteNumbersTravel) {
  const absl::StatusOr<LinearLogpCase> plain = test_support::LoadLinearLogpCase("linear_logp/plain_bias.json");
  ASSERT_TRUE(plain.ok()) << plain.status();
  LinearLogpCase test = *plain;
  test.hidden[0] = std::numeric_limits<double>::quiet_NaN();
  const GradientResult got = CallUnary(stub_.get(), UnaryRequest(test, DType::kFloat32));
  ASSERT_TRUE(got.status.ok()) << got.status.error_message();
  const std::vector<double> logp = Decode(got.response.logp().data(), v1::DATA_TYPE_FLOAT32);
  EXPECT_FALSE(std::isfinite(logp[0]));  // C10
  EXPECT_NEAR(logp[1], plain->expected.logp[1], 1e-5);
}

TEST_F(ServerGradientTest, RequestBeyondTheMemoryIsRefusedAndTheNextSucceeds) {
  const absl::StatusOr<LinearLogpCase> plain = test_support::LoadLinearLogpCase("linear_logp/plain_bias.json");
  ASSERT_TRUE(plain.ok()) << plain.status();
  v1::GradientRequest request = UnaryRequest(*plain, DType::kFloat32);
  const std::int64_t huge = std::int64_t{1} << 38;  // 8 TiB of hidden: declared, never sent.
  v1::GradientRequest declared = request;
  v1::LinearLogpInputs* const inputs = declared.mutable_inputs();
  inputs->mutable_hidden()->mutable_spec()->set_shape(0, huge);
  inputs->mutable_targets()->mutable_spec()->set_shape(0, huge);
  inputs->mutable_grad_logp()->mutable_spec()->set_shape(0, huge);
  const std::int64_t before = server_->ResidentBytes();
  const GradientResult refused = CallStream(stub_.get(), declared);
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << refused.status.error_message();
  EXPECT_THAT(refused.status.error_message(), ::testing::ContainsRegex("[0-9]+ bytes needed.* free"));
  EXPECT_LT(server_->ResidentBytes() - before, 16 << 20);
  EXPECT_TRUE(CallStream(stub_.get(), request).status.ok());
}

}  // namespace
}  // namespace keval
