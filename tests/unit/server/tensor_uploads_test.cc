#include "server/tensor_uploads.h"

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"

namespace keval::server {
namespace {

class TensorUploadsTest : public ::testing::Test {
 protected:
  static TensorStore::Options StoreOptions() {
    TensorStore::Options options;
    options.max_bytes = 1000;
    return options;
  }
  static TensorUploads::Part Part(std::int64_t begin, std::int64_t size, char id = 'u') {
    return {std::string(16, id), {DType::kInt32, {25}}, 100, absl::ZeroDuration(), begin, size};
  }

  TensorStore store_{StoreOptions(), std::make_shared<HostMemoryPool>(0)};
  TensorUploads uploads_{&store_, absl::Milliseconds(20)};
};

TEST_F(TensorUploadsTest, MemoryIsCountedOnceAndComesBackWhenAPartFails) {
  auto first = uploads_.Join("ann", Part(0, 40));
  ASSERT_TRUE(first.ok()) << first.status();
  auto second = uploads_.Join("ann", Part(40, 60));
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(store_.used_bytes(), 100);
  EXPECT_EQ((*second)->data() - (*first)->data(), 40);
  first->reset();
  EXPECT_EQ((*second)->Check().code(), absl::StatusCode::kAborted);
  EXPECT_EQ((*second)->Complete().status().code(), absl::StatusCode::kAborted);
  second->reset();
  EXPECT_EQ(store_.used_bytes(), 0);
}

TEST_F(TensorUploadsTest, AnotherPrincipalsIdIsAnotherUpload) {
  auto anns = uploads_.Join("ann", Part(0, 40));
  auto bobs = uploads_.Join("bob", Part(0, 40));
  ASSERT_TRUE(anns.ok() && bobs.ok());
  EXPECT_NE((*anns)->data(), (*bobs)->data());
  EXPECT_EQ(store_.used_bytes(), 200);
}

TEST_F(TensorUploadsTest, AnUploadWhoseNextPartDoesNotComeIsGivenUp) {
  {
    auto first = uploads_.Join("ann", Part(0, 40));
    ASSERT_TRUE(first.ok());
    ASSERT_TRUE((*first)->Complete().ok());
    absl::SleepFor(absl::Milliseconds(40));
    uploads_.DropIdle();
    EXPECT_EQ(store_.used_bytes(), 100);  // Its stream is still there.
  }
  uploads_.DropIdle();
  EXPECT_EQ(store_.used_bytes(), 100);
  absl::SleepFor(absl::Milliseconds(40));
  uploads_.DropIdle();
  EXPECT_EQ(store_.used_bytes(), 0);
}

TEST_F(TensorUploadsTest, RefusedMemoryLeavesNoUpload) {
  TensorUploads::Part part = Part(0, 40);
  part.spec.shape = {500};
  part.bytes = 2000;
  EXPECT_EQ(uploads_.Join("ann", part).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(uploads_.Join("ann", Part(0, 40)).ok());  // The same id with another spec: nothing of the first is left.
}

TEST_F(TensorUploadsTest, AnEmptyTensorIsCompleteWithItsOnePart) {
  TensorUploads::Part part = Part(0, 0);
  part.spec.shape = {0};
  part.bytes = 0;
  auto share = uploads_.Join("ann", part);
  ASSERT_TRUE(share.ok()) << share.status();
  const auto tensor = (*share)->Complete();
  ASSERT_TRUE(tensor.ok() && tensor->has_value());
  EXPECT_TRUE(store_.Find("ann", (*tensor)->handle).ok());
}

// Many streams at once: each upload becomes one tensor, named to exactly one of its parts.
TEST_F(TensorUploadsTest, PartsOfManyThreadsMakeOneTensor) {
  for (int round = 0; round < 50; ++round) {
    std::vector<std::string> handles(4);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        const auto share = uploads_.Join("ann", Part(i * 25, 25));
        if (!share.ok()) return;
        std::memset((*share)->data(), 'a' + i, 25);
        const auto tensor = (*share)->Complete();
        if (tensor.ok() && tensor->has_value()) handles[static_cast<std::size_t>(i)] = (*tensor)->handle;
      });
    }
    for (std::thread& thread : threads) thread.join();
    std::string handle;
    for (const std::string& named : handles) handle += named;
    const auto tensor = store_.Find("ann", handle);
    ASSERT_TRUE(tensor.ok()) << handle;
    EXPECT_EQ(static_cast<char>(tensor->buffer->data()[99]), 'd');
    ASSERT_TRUE(store_.Delete("ann", handle).ok());
  }
  EXPECT_EQ(store_.used_bytes(), 0);
}

}  // namespace
}  // namespace keval::server
