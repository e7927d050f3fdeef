#include "server/tensor_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "base/field_error.h"

namespace keval::server {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class TensorStoreTest : public ::testing::Test {
 protected:
  TensorStoreTest() : store_(MakeOptions(), std::make_shared<HostMemoryPool>(0)) {}

  TensorStore::Options MakeOptions() {
    TensorStore::Options options;
    options.max_bytes = 1000;
    options.default_lease = absl::Minutes(1);
    options.max_lease = absl::Minutes(10);
    options.now = [this] { return now_; };
    return options;
  }

  std::string Put(const std::string& principal, std::int64_t bytes, absl::Duration lease = absl::ZeroDuration()) {
    absl::StatusOr<std::shared_ptr<HostBuffer>> buffer = store_.Allocate(bytes);
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    return store_.Insert(principal, {DType::kFloat32, {bytes / 4}}, *buffer, {}, lease).handle;
  }

  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
  TensorStore store_;
};

TEST_F(TensorStoreTest, HandlesAreLongAndNeverTheSame) {
  std::set<std::string> handles;
  for (int i = 0; i < 100; ++i) {
    const std::string handle = Put("ann", 4);
    EXPECT_TRUE(absl::StartsWith(handle, "tensors/"));
    EXPECT_THAT(handle, SizeIs(8 + 32));
    handles.insert(handle);
  }
  EXPECT_THAT(handles, SizeIs(100));
}

TEST_F(TensorStoreTest, OthersSeeTheSameAsNothing) {
  const std::string handle = Put("ann", 100);
  const absl::Status unknown = store_.Find("bob", "tensors/00000000000000000000000000000000").status();
  const absl::Status theirs = store_.Find("bob", handle).status();
  EXPECT_EQ(theirs.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(theirs.message(), unknown.message());
  EXPECT_EQ(store_.Touch("bob", handle, absl::Minutes(1)).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(store_.Delete("bob", handle).code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(store_.List("bob", "", 10), IsEmpty());
  EXPECT_TRUE(store_.Find("ann", handle).ok());
}

TEST_F(TensorStoreTest, LeaseEndsAndMemoryComesBack) {
  const std::string handle = Put("ann", 100);
  now_ += absl::Seconds(59);
  EXPECT_TRUE(store_.Find("ann", handle).ok());
  now_ += absl::Seconds(1);
  EXPECT_EQ(store_.Find("ann", handle).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(store_.used_bytes(), 0);
}

TEST_F(TensorStoreTest, DropExpiredNeedsNoOtherCall) {
  Put("ann", 100);
  now_ += absl::Hours(1);
  EXPECT_EQ(store_.used_bytes(), 100);
  store_.DropExpired();
  EXPECT_EQ(store_.used_bytes(), 0);
}

TEST_F(TensorStoreTest, TouchExtendsNeverShortensAndIsCutToTheMaximum) {
  const std::string handle = Put("ann", 100, absl::Minutes(5));
  EXPECT_EQ(store_.Touch("ann", handle, absl::Minutes(1))->expires, now_ + absl::Minutes(5));
  EXPECT_EQ(store_.Touch("ann", handle, absl::Hours(99))->expires, now_ + absl::Minutes(10));
  EXPECT_EQ(store_.Find("ann", Put("ann", 4, absl::Hours(99)))->expires, now_ + absl::Minutes(10));
}

TEST_F(TensorStoreTest, EveryByteIsCountedUntilNobodyReadsIt) {
  const std::string first = Put("ann", 600);
  EXPECT_EQ(store_.used_bytes(), 600);
  const absl::Status full = store_.Allocate(401).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()), HasSubstr("401 bytes needed, 400 free of 1000"));
  EXPECT_TRUE(GetRetryDelayMs(full).has_value());
  {
    const absl::StatusOr<StoredTensor> reader = store_.Find("ann", first);
    EXPECT_TRUE(store_.Delete("ann", first).ok());
    EXPECT_EQ(store_.used_bytes(), 600);  // Still being read.
  }
  EXPECT_EQ(store_.used_bytes(), 0);
  EXPECT_EQ(store_.Delete("ann", first).code(), absl::StatusCode::kNotFound);
}

TEST_F(TensorStoreTest, WhatNeverFitsHasNoRetryDelay) {
  const absl::Status status = store_.Allocate(1001).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(GetRetryDelayMs(status).has_value());
}

TEST_F(TensorStoreTest, AbandonedUploadGivesItsBytesBack) {
  { const absl::StatusOr<std::shared_ptr<HostBuffer>> buffer = store_.Allocate(1000); }
  EXPECT_EQ(store_.used_bytes(), 0);
}

TEST_F(TensorStoreTest, EmptyTensorsAreTensors) {
  const std::string handle = Put("ann", 0);
  EXPECT_EQ(store_.Find("ann", handle)->buffer->size(), 0);
}

TEST_F(TensorStoreTest, ListsAPageAtATime) {
  for (int i = 0; i < 5; ++i) Put(i % 2 == 0 ? "ann" : "bob", 4);
  const std::vector<StoredTensor> first = store_.List("ann", "", 2);
  ASSERT_THAT(first, SizeIs(2));
  const std::vector<StoredTensor> rest = store_.List("ann", first.back().handle, 2);
  ASSERT_THAT(rest, SizeIs(1));
  EXPECT_LT(first[0].handle, first[1].handle);
  EXPECT_LT(first[1].handle, rest[0].handle);
}

}  // namespace
}  // namespace keval::server
