#include "wire/slices.h"

#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "keval/v1/tensor.pb.h"
#include "wire/message.h"

namespace keval::wire {
namespace {

using ::testing::SizeIs;

Payload PayloadOver(const std::string& memory, std::shared_ptr<const void> owner) {
  return {5, {reinterpret_cast<const std::byte*>(memory.data()), memory.size()}, std::move(owner)};
}

TEST(SlicesTest, TheSecondSliceLiesOverTheMemoryItself) {
  const std::string memory(1 << 20, 'm');
  std::vector<grpc::Slice> slices;
  ASSERT_TRUE(EncodeMessage("", PayloadOver(memory, nullptr)).Dump(&slices).ok());
  ASSERT_THAT(slices, SizeIs(2));
  EXPECT_LT(slices[0].size(), 16U);
  EXPECT_EQ(reinterpret_cast<const char*>(slices[1].begin()), memory.data());
  EXPECT_EQ(slices[1].size(), memory.size());
}

TEST(SlicesTest, TheOwnerIsHeldUntilTheLastCopyOfASliceIsGone) {
  const auto owner = std::make_shared<const int>(1);
  const std::string memory(100000, 'm');
  std::vector<grpc::Slice> slices;
  {
    const grpc::ByteBuffer buffer = EncodeMessage("", PayloadOver(memory, owner));
    EXPECT_EQ(owner.use_count(), 2);
    ASSERT_TRUE(buffer.Dump(&slices).ok());
  }
  EXPECT_EQ(owner.use_count(), 2);
  slices.erase(slices.begin());
  const grpc::Slice part = slices[0].sub(10, 20000);
  slices.clear();
  EXPECT_EQ(owner.use_count(), 2);
}

TEST(SlicesTest, AMessageGoesThroughGrpcsTraitsAndBack) {
  const std::string memory(1000, 'm');
  v1::PutRequest fields;
  fields.mutable_header()->set_lease_ms(3);
  grpc::ByteBuffer buffer;
  bool own = false;
  using Sent = SentMessage<v1::PutRequest>;
  using Received = ReceivedMessage<v1::PutRequest>;
  ASSERT_TRUE(grpc::SerializationTraits<Sent>::Serialize({&fields, PayloadOver(memory, nullptr)}, &buffer, &own).ok());
  Received received;
  ASSERT_TRUE(grpc::SerializationTraits<Received>::Deserialize(&buffer, &received).ok());
  ASSERT_TRUE(received.status.ok()) << received.status;
  EXPECT_EQ(received.fields.header().lease_ms(), 3);
  EXPECT_EQ(received.data.offset, 5U);
  EXPECT_EQ(received.data.size, memory.size());
}

TEST(SlicesTest, WhatIsNoMessageIsSaidSo) {
  for (const std::string& encoding : {std::string("\x12\x7f"), std::string("\x1a\x02\x08\x80", 4)}) {
    const grpc::Slice slice(encoding);
    grpc::ByteBuffer buffer(&slice, 1);
    ReceivedMessage<v1::PutRequest> received;
    ASSERT_TRUE(grpc::SerializationTraits<ReceivedMessage<v1::PutRequest>>::Deserialize(&buffer, &received).ok());
    EXPECT_EQ(received.status.code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace keval::wire
