#include "server/tensor_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <tuple>
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
    options.max_tensors_per_principal = 100;
    options.default_lease = absl::Minutes(1);
    options.max_lease = absl::Minutes(10);
    options.now = [this] { return now_; };
    return options;
  }

  static TensorSpec Spec(std::int64_t bytes) { return {DType::kFloat32, {bytes / 4}}; }

  std::string Put(const std::string& principal, std::int64_t bytes, absl::Duration lease = absl::ZeroDuration(),
                  const std::string& sha256 = "") {
    absl::StatusOr<std::shared_ptr<HostBuffer>> buffer = store_.Allocate(principal, bytes);
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    absl::StatusOr<StoredTensor> stored = store_.Insert(principal, Spec(bytes), *buffer, {sha256, ""}, lease);
    EXPECT_TRUE(stored.ok()) << stored.status();
    return stored->handle;
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
  EXPECT_EQ(store_.Delete("ann", handle).code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(store_.List("ann", "", 10), IsEmpty());
  EXPECT_EQ(store_.usage().expired_bytes, 100);
  EXPECT_EQ(store_.usage().tensors, 0);
  now_ += absl::Minutes(10);
  store_.DropExpired();
  EXPECT_EQ(store_.used_bytes(), 0);
}

TEST_F(TensorStoreTest, ACallersTensorsAreCountedHoweverSmall) {
  const auto buffer = store_.Allocate("ann", 0);  // Of an upload that ends later.
  ASSERT_TRUE(buffer.ok());
  const std::string handle = Put("ann", 0, absl::Minutes(1), "first");
  for (int i = 1; i < 100; ++i) Put("ann", 0, absl::Minutes(5));
  for (const absl::Status& refused :
       {store_.Allocate("ann", 0).status(), store_.Insert("ann", Spec(0), *buffer, {}, absl::Minutes(1)).status(),
        store_.Reuse("ann", Spec(0), "first", absl::Minutes(1)).status()}) {
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
    const auto violation = GetFieldViolation(refused);
    ASSERT_TRUE(violation.has_value());
    EXPECT_EQ(violation->field, "tensors");
    EXPECT_EQ(violation->value, "101");
    EXPECT_EQ(violation->limit, "at most 100 of one caller");
  }
  EXPECT_TRUE(store_.Allocate("bob", 0).ok());
  ASSERT_TRUE(store_.Delete("ann", handle).ok());
  EXPECT_TRUE(store_.Allocate("ann", 0).ok());
}

TEST_F(TensorStoreTest, ExpiredTensorsMakeRoomInTheCountToo) {
  for (int i = 0; i < 100; ++i) Put("ann", 0, absl::Minutes(1));
  now_ += absl::Minutes(2);  // Kept for ten minutes, but out of the way.
  Put("ann", 0);
  EXPECT_EQ(store_.usage().tensors, 1);
}

TEST_F(TensorStoreTest, ExpiredTensorsGiveWayTheLeastRecentlyUsedFirst) {
  Put("ann", 300, absl::Minutes(1), "first");
  now_ += absl::Seconds(1);
  const std::string second = Put("ann", 300, absl::Minutes(1), "second");
  now_ += absl::Seconds(1);
  const std::string running = Put("ann", 300, absl::Minutes(9), "running");
  now_ += absl::Minutes(2);
  EXPECT_TRUE(store_.Allocate("bob", 100).ok());  // There is room: nothing gives way.
  EXPECT_EQ(store_.usage().expired_bytes, 600);
  EXPECT_TRUE(store_.Allocate("bob", 300).ok());
  EXPECT_EQ(store_.usage().expired_bytes, 300);
  EXPECT_EQ(store_.Reuse("ann", Spec(300), "first", absl::ZeroDuration()).status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(store_.Reuse("ann", Spec(300), "second", absl::ZeroDuration()).ok());
  // What is left has leases that run.
  EXPECT_EQ(store_.Allocate("bob", 500).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(store_.Find("ann", running).ok());
}

TEST_F(TensorStoreTest, WhatNeverFitsMakesNothingGiveWay) {
  Put("ann", 300, absl::Minutes(1));
  now_ += absl::Minutes(2);
  EXPECT_FALSE(store_.Allocate("bob", 1001).ok());
  EXPECT_EQ(store_.usage().expired_bytes, 300);
}

TEST_F(TensorStoreTest, ReusedBytesCountOnceAndLastAsLongAsOneHandle) {
  const std::string first = Put("ann", 400, absl::Minutes(1), "digest");
  const absl::StatusOr<StoredTensor> second = store_.Reuse("ann", Spec(400), "digest", absl::Minutes(5));
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_NE(second->handle, first);
  EXPECT_EQ(second->expires, now_ + absl::Minutes(5));
  EXPECT_EQ(second->digests.sha256, "digest");
  EXPECT_EQ(store_.used_bytes(), 400);
  EXPECT_TRUE(store_.Delete("ann", first).ok());
  EXPECT_EQ(store_.used_bytes(), 400);
  EXPECT_TRUE(store_.Find("ann", second->handle).ok());
  for (const auto& [principal, spec, sha256] :
       std::vector<std::tuple<std::string, TensorSpec, std::string>>{{"bob", Spec(400), "digest"},
                                                                     {"ann", Spec(396), "digest"},
                                                                     {"ann", {DType::kInt32, {100}}, "digest"},
                                                                     {"ann", Spec(400), "other"}}) {
    EXPECT_EQ(store_.Reuse(principal, spec, sha256, absl::ZeroDuration()).status().code(), absl::StatusCode::kNotFound);
  }
}

TEST_F(TensorStoreTest, AnExpiredHandleStaysDeadWhenItsBytesLiveOn) {
  const std::string first = Put("ann", 400, absl::Minutes(1), "digest");
  now_ += absl::Minutes(2);
  ASSERT_TRUE(store_.Reuse("ann", Spec(400), "digest", absl::Minutes(1)).ok());
  EXPECT_EQ(store_.Find("ann", first).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(store_.usage().expired_bytes, 0);
  EXPECT_EQ(store_.usage().tensors, 1);
}

TEST_F(TensorStoreTest, APrincipalHasItsShare) {
  TensorStore::Options options = MakeOptions();
  options.max_bytes_per_principal = 500;
  TensorStore store(options, std::make_shared<HostMemoryPool>(0));
  auto first = store.Allocate("ann", 400);
  ASSERT_TRUE(first.ok());
  const absl::Status full = store.Allocate("ann", 101).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()), HasSubstr("share of memory for stored tensors: 101 bytes needed, 100 free"));
  EXPECT_TRUE(GetRetryDelayMs(full).has_value());
  EXPECT_FALSE(GetRetryDelayMs(store.Allocate("ann", 501).status()).has_value());
  EXPECT_EQ(store.used_bytes(), 400);  // A refusal by one budget takes nothing of the other.
  EXPECT_TRUE(store.Allocate("bob", 500).ok());
  first->reset();
  EXPECT_TRUE(store.Allocate("ann", 500).ok());
}

TEST_F(TensorStoreTest, TenThousandPutsAndDeletesReturnToTheBaseline) {
  for (int i = 0; i < 10000; ++i) {
    const std::string principal = i % 7 == 0 ? "bob" : "ann";
    const std::string handle = Put(principal, 4 * (i % 200), absl::ZeroDuration(), "digest");
    const auto reused = store_.Reuse(principal, Spec(4 * (i % 200)), "digest", absl::ZeroDuration());
    ASSERT_TRUE(reused.ok());
    ASSERT_TRUE(store_.Delete(principal, handle).ok());
    ASSERT_TRUE(store_.Delete(principal, reused->handle).ok());
  }
  EXPECT_EQ(store_.used_bytes(), 0);
  EXPECT_EQ(store_.usage().tensors, 0);
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
  const absl::Status full = store_.Allocate("bob", 401).status();
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
  const absl::Status status = store_.Allocate("ann", 1001).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(GetRetryDelayMs(status).has_value());
}

TEST_F(TensorStoreTest, AbandonedUploadGivesItsBytesBack) {
  { const absl::StatusOr<std::shared_ptr<HostBuffer>> buffer = store_.Allocate("ann", 1000); }
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
