// TensorService through gRPC, over a fake device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/sha256.h"
#include "tests/unit/server/kevald_fixture.h"

namespace keval::server {
namespace {

TEST_F(KevaldTest, StoredTensorsAreOperandsOfTheirOwnerAlone) {
  Start();
  const std::string weight(4 * kVocab * kHidden, '\0');
  v1::TensorInfo info;
  const grpc::Status put = Put(GoodPut(v1::DATA_TYPE_FLOAT32, {kVocab, kHidden}, weight), &info, "ann");
  ASSERT_TRUE(put.ok()) << put.error_message();
  EXPECT_EQ(info.sha256(), Sha256Bytes(weight));
  EXPECT_EQ(info.size_bytes(), weight.size());

  v1::GradientRequest request = Unary();
  request.mutable_inputs()->mutable_weight()->set_handle(info.handle());
  const auto gradient_as = [&](const std::string& principal, v1::ErrorDetail* detail) {
    grpc::ClientContext context;
    context.AddMetadata("x-principal", principal);
    v1::GradientResponse response;
    grpc::Status status = linear_logp_->Gradient(&context, request, &response);
    *detail = DetailOf(context);
    return status;
  };
  v1::ErrorDetail detail;
  EXPECT_TRUE(gradient_as("ann", &detail).ok());
  EXPECT_EQ(gradient_as("bob", &detail).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(detail.field(), "weight.handle");
  EXPECT_EQ(gradient_as("mallory", &detail).error_code(), grpc::StatusCode::UNAUTHENTICATED);

  SetSpec(request.mutable_inputs()->mutable_weight(), v1::DATA_TYPE_FLOAT32, {kHidden, kVocab});
  EXPECT_EQ(gradient_as("ann", &detail).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(detail.field(), "weight");

  v1::TensorInfo seen;
  EXPECT_TRUE(Stat(info.handle(), "ann", &seen).ok());
  EXPECT_EQ(Stat(info.handle(), "bob", &seen).error_code(), grpc::StatusCode::NOT_FOUND);

  std::string read;
  grpc::ClientContext context;
  context.AddMetadata("x-principal", "ann");
  v1::GetTensorRequest get;
  get.set_handle(info.handle());
  auto reader = tensors_->Get(&context, get);
  v1::GetTensorResponse message;
  while (reader->Read(&message)) read += message.data();
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(read, weight);

  for (const auto& [principal, code] : std::vector<std::pair<std::string, grpc::StatusCode>>{
           {"bob", grpc::StatusCode::NOT_FOUND}, {"ann", grpc::StatusCode::OK}, {"ann", grpc::StatusCode::NOT_FOUND}}) {
    grpc::ClientContext delete_context;
    delete_context.AddMetadata("x-principal", principal);
    v1::DeleteTensorRequest request_delete;
    request_delete.set_handle(info.handle());
    v1::DeleteTensorResponse response;
    EXPECT_EQ(tensors_->Delete(&delete_context, request_delete, &response).error_code(), code) << principal;
  }
}

TEST_F(KevaldTest, PutIsRefusedForWhatItLiesAbout) {
  ServerOptions options;
  options.max_stored_tensor_bytes = 1 << 20;
  Start(options);
  const std::vector<v1::PutRequest> good = GoodPut(v1::DATA_TYPE_INT64, {2}, std::string(16, 'x'));
  struct Case {
    std::string name;
    std::function<void(std::vector<v1::PutRequest>*)> change;
    std::string field;
    grpc::StatusCode code = grpc::StatusCode::INVALID_ARGUMENT;
  };
  const auto shape = [](auto* m, const std::vector<std::int64_t>& sizes) {
    m->front().mutable_header()->mutable_spec()->clear_shape();
    for (const std::int64_t size : sizes) m->front().mutable_header()->mutable_spec()->add_shape(size);
  };
  const std::vector<Case> cases = {
      {"no header", [](auto* m) { m->erase(m->begin()); }, "header"},
      {"nothing", [](auto* m) { m->clear(); }, "header"},
      {"header twice", [](auto* m) { *m->back().mutable_header() = m->front().header(); }, "header"},
      {"no dtype", [](auto* m) { m->front().mutable_header()->mutable_spec()->clear_dtype(); }, "spec"},
      {"negative", [&](auto* m) { shape(m, {-1}); }, "spec"},
      {"product wraps",
       [&](auto* m) {
         shape(m, {std::int64_t{1} << 32, std::int64_t{1} << 32});
       },
       "spec"},
      {"bytes wrap", [&](auto* m) { shape(m, {std::int64_t{1} << 62}); }, "spec"},
      {"many dimensions", [&](auto* m) { shape(m, std::vector<std::int64_t>(100000, 1)); }, "spec"},
      {"early end", [](auto* m) { m->back().mutable_data()->resize(15); }, "data"},
      {"too much", [](auto* m) { m->back().mutable_data()->append("y"); }, "data"},
      {"lease", [](auto* m) { m->front().mutable_header()->set_lease_ms(-1); }, "lease_ms"},
      {"digest", [](auto* m) { m->back().mutable_trailer()->set_sha256(std::string(32, 'x')); }, "sha256"},
      {"store is full", [&](auto* m) { shape(m, {1 << 20}); }, "", grpc::StatusCode::RESOURCE_EXHAUSTED},
  };
  v1::TensorInfo info;
  for (const Case& test : cases) {
    std::vector<v1::PutRequest> messages = good;
    test.change(&messages);
    v1::ErrorDetail detail;
    const grpc::Status status = Put(messages, &info, "ann", &detail);
    EXPECT_EQ(status.error_code(), test.code) << test.name << ": " << status.error_message();
    EXPECT_EQ(detail.field(), test.field) << test.name << ": " << status.error_message();
  }
  EXPECT_TRUE(Put(good, &info, "ann").ok());
}

}  // namespace
}  // namespace keval::server
