// TensorService through gRPC, over a fake device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/sha256.h"
#include "keval/v1/server_info.grpc.pb.h"
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

TEST_F(KevaldTest, BytesThatWereSentBeforeGetAnotherHandle) {
  ServerOptions options;
  options.max_stored_tensor_bytes = 1 << 20;
  options.max_stored_tensor_bytes_per_caller = 100;
  Start(options);
  v1::TensorInfo first;
  ASSERT_TRUE(Put(GoodPut(v1::DATA_TYPE_INT64, {8}, std::string(64, 'x')), &first, "ann").ok());
  const auto reuse = [&](const std::string& principal, const std::string& sha256, v1::TensorInfo* info,
                         v1::ErrorDetail* detail) {
    grpc::ClientContext context;
    context.AddMetadata("x-principal", principal);
    v1::ReuseTensorRequest request;
    *request.mutable_spec() = first.spec();
    request.set_sha256(sha256);
    grpc::Status status = tensors_->Reuse(&context, request, info);
    *detail = DetailOf(context);
    return status.error_code();
  };
  v1::TensorInfo second;
  v1::ErrorDetail detail;
  ASSERT_EQ(reuse("ann", first.sha256(), &second, &detail), grpc::StatusCode::OK);
  EXPECT_NE(second.handle(), first.handle());
  EXPECT_EQ(second.sha256(), first.sha256());
  EXPECT_EQ(reuse("bob", first.sha256(), &second, &detail), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(detail.field(), "sha256");
  EXPECT_EQ(reuse("ann", "short", &second, &detail), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(detail.field(), "sha256");

  v1::ServerInfo info;
  grpc::ClientContext context;
  ASSERT_TRUE(v1::ServerInfoService::NewStub(channel_)->GetServerInfo(&context, {}, &info).ok());
  EXPECT_EQ(info.tensor_store().used_bytes(), 64);
  EXPECT_EQ(info.tensor_store().tensors(), 2);
  EXPECT_EQ(info.limits().max_stored_tensor_bytes_per_caller(), 100);
  // Ann's share is full, bob's isn't.
  v1::TensorInfo more;
  const std::vector<v1::PutRequest> messages = GoodPut(v1::DATA_TYPE_INT64, {5}, std::string(40, 'y'));
  EXPECT_EQ(Put(messages, &more, "ann").error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(Put(messages, &more, "bob").ok());
}

// The parts of one tensor of four int32, each brought by a Put of its own.
class PartsTest : public KevaldTest {
 protected:
  static std::vector<v1::PutRequest> Part(std::int64_t begin, const std::string& data,
                                          const std::string& id = std::string(16, 'u')) {
    std::vector<v1::PutRequest> messages = GoodPut(v1::DATA_TYPE_INT32, {4}, data);
    v1::UploadPart* const part = messages[0].mutable_header()->mutable_part();
    part->set_upload_id(id);
    part->set_begin(begin);
    part->set_size(static_cast<std::int64_t>(data.size()));
    return messages;
  }
  grpc::Status PutPart(const std::vector<v1::PutRequest>& messages, v1::TensorInfo* info,
                       v1::ErrorDetail* detail = nullptr) {
    info->Clear();
    return Put(messages, info, "ann", detail);
  }
  std::string Read(const std::string& handle, v1::PayloadDigest digest = v1::PAYLOAD_DIGEST_UNSPECIFIED,
                   v1::PayloadTrailer* trailer = nullptr) {
    grpc::ClientContext context;
    context.AddMetadata("x-principal", "ann");
    v1::GetTensorRequest request;
    request.set_handle(handle);
    request.set_digest(digest);
    auto reader = tensors_->Get(&context, request);
    std::string read;
    for (v1::GetTensorResponse message; reader->Read(&message);) {
      EXPECT_TRUE(message.data().empty() || message.offset() == read.size());
      read += message.data();
      if (trailer != nullptr && message.has_trailer()) *trailer = message.trailer();
    }
    EXPECT_TRUE(reader->Finish().ok());
    return read;
  }
};

TEST_F(PartsTest, TheLastPartsAnswerNamesTheTensor) {
  Start();
  v1::TensorInfo info;
  ASSERT_TRUE(PutPart(Part(10, "klmnop"), &info).ok());
  EXPECT_EQ(info.handle(), "");
  ASSERT_TRUE(PutPart(Part(0, "abcde"), &info).ok());
  EXPECT_EQ(info.handle(), "");
  ASSERT_TRUE(PutPart(Part(5, "fghij"), &info).ok());
  ASSERT_NE(info.handle(), "");
  EXPECT_EQ(info.sha256(), "");  // Nobody gave it.
  v1::PayloadTrailer trailer;
  EXPECT_EQ(Read(info.handle(), v1::PAYLOAD_DIGEST_UNSPECIFIED, &trailer), "abcdefghijklmnop");
  EXPECT_EQ(trailer.sha256(), Sha256Bytes("abcdefghijklmnop"));
  EXPECT_EQ(Read(info.handle(), v1::PAYLOAD_DIGEST_XXH3, &trailer), "abcdefghijklmnop");
  EXPECT_EQ(trailer.xxh3().size(), 16U);
  EXPECT_EQ(Read(info.handle(), v1::PAYLOAD_DIGEST_NONE), "abcdefghijklmnop");
}

TEST_F(PartsTest, WhatAPartLiesAboutIsRefusedByName) {
  Start();
  v1::TensorInfo info;
  ASSERT_TRUE(PutPart(Part(4, "efgh"), &info).ok());
  struct Case {
    std::string name;
    std::vector<v1::PutRequest> messages;
    std::string field;
  };
  std::vector<v1::PutRequest> other_spec = Part(0, "ab");
  other_spec[0].mutable_header()->mutable_spec()->set_dtype(v1::DATA_TYPE_FLOAT32);
  std::vector<v1::PutRequest> negative = Part(0, "ab");
  negative[0].mutable_header()->mutable_part()->set_size(-1);
  std::vector<v1::PutRequest> wraps = Part(1, "ab");
  wraps[0].mutable_header()->mutable_part()->set_size(INT64_MAX);
  const std::vector<Case> cases = {
      {"short id", Part(0, "ab", "id"), "upload_id"},
      {"before the tensor", Part(-1, "ab"), "part"},
      {"beyond the tensor", Part(15, "ab"), "part"},
      {"negative size", negative, "part"},
      {"size wraps", wraps, "part"},
      {"overlaps from before", Part(2, "cde"), "part"},
      {"overlaps from behind", Part(7, "hi"), "part"},
      {"within", Part(5, "f"), "part"},
      {"the same again", Part(4, "efgh"), "part"},
      {"other spec", other_spec, "spec"},
  };
  for (const Case& test : cases) {
    v1::ErrorDetail detail;
    EXPECT_EQ(PutPart(test.messages, &info, &detail).error_code(), grpc::StatusCode::INVALID_ARGUMENT) << test.name;
    EXPECT_EQ(detail.field(), test.field) << test.name;
  }
  // Refused before it became a part: the upload goes on.
  ASSERT_TRUE(PutPart(Part(8, "ijklmnop"), &info).ok());
  ASSERT_TRUE(PutPart(Part(0, "abcd"), &info).ok());
  EXPECT_NE(info.handle(), "");
}

TEST_F(PartsTest, APartThatEndsEarlyEndsTheUpload) {
  Start();
  v1::TensorInfo info;
  ASSERT_TRUE(PutPart(Part(0, "abcd"), &info).ok());
  std::vector<v1::PutRequest> early = Part(4, "efghijklmnop");
  early[1].mutable_data()->resize(3);
  EXPECT_EQ(PutPart(early, &info).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  // A part of the same id begins another upload, which lacks the first.
  ASSERT_TRUE(PutPart(Part(4, "efghijklmnop"), &info).ok());
  EXPECT_EQ(info.handle(), "");
}

TEST_F(PartsTest, AFailedPartIsTheOthersAbort) {
  Start();
  v1::TensorInfo info;
  grpc::ClientContext context;
  context.AddMetadata("x-principal", "ann");
  const auto writer = tensors_->Put(&context, &info);
  const std::vector<v1::PutRequest> first = Part(0, "abcdefgh");
  ASSERT_TRUE(writer->Write(first[0]));
  std::vector<v1::PutRequest> bad = Part(8, "ijklmnop");
  bad[1].set_offset(1);
  // Whichever of the two came first: the other knows of it.
  v1::TensorInfo ignored;
  EXPECT_EQ(PutPart(bad, &ignored).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  writer->Write(first[1]);
  writer->WritesDone();
  const grpc::Status status = writer->Finish();
  // Begun after the bad one failed, it is the first part of another upload.
  EXPECT_TRUE(status.error_code() == grpc::StatusCode::ABORTED || (status.ok() && info.handle().empty()))
      << status.error_message();
}

TEST_F(PartsTest, Xxh3IsCheckedWhereTheHeaderAnnouncesIt) {
  Start();
  v1::TensorInfo info;
  std::vector<v1::PutRequest> messages = GoodPut(v1::DATA_TYPE_INT32, {1}, "abcd");
  messages[0].mutable_header()->set_digest(v1::PAYLOAD_DIGEST_XXH3);
  messages[1].mutable_trailer()->set_xxh3(std::string(16, 'x'));
  v1::ErrorDetail detail;
  EXPECT_EQ(PutPart(messages, &info, &detail).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(detail.field(), "xxh3");
  messages[1].clear_trailer();
  ASSERT_TRUE(PutPart(messages, &info).ok());
  ASSERT_EQ(info.xxh3().size(), 16U);
  EXPECT_EQ(info.sha256(), "");
  messages[1].mutable_trailer()->set_xxh3(info.xxh3());
  EXPECT_TRUE(PutPart(messages, &info).ok());
  messages[0].mutable_header()->clear_digest();
  EXPECT_EQ(PutPart(messages, &info, &detail).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(detail.field(), "xxh3");
}

}  // namespace
}  // namespace keval::server
