#include "server/tensor_frames.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "base/field_error.h"
#include "base/sha256.h"

namespace keval::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FrameAssemblerTest : public ::testing::Test {
 protected:
  // Two tensors of 4 and 6 bytes with an empty one between them.
  FrameAssembler Make() {
    return FrameAssembler({Segment("first", &first_), Segment("empty", &empty_), Segment("last", &last_)},
                          [this](std::size_t segment) {
                            completed_.push_back(segment);
                            return complete_status_;
                          });
  }
  static PayloadSegment Segment(const std::string& name, std::string* memory) {
    return {name, reinterpret_cast<std::byte*>(memory->data()), static_cast<std::int64_t>(memory->size())};
  }
  static v1::PayloadTrailer Digest(const std::string& payload) {
    v1::PayloadTrailer trailer;
    trailer.set_sha256(Sha256Bytes(payload));
    return trailer;
  }
  static std::string FieldOf(const absl::Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return GetFieldViolation(status).value_or(FieldViolation()).field;
  }

  std::string first_ = std::string(4, '.');
  std::string empty_;
  std::string last_ = std::string(6, '.');
  std::vector<std::size_t> completed_;
  absl::Status complete_status_;
};

TEST_F(FrameAssemblerTest, PutsBytesInTheirPlaces) {
  FrameAssembler assembler = Make();
  EXPECT_TRUE(assembler.Add(0, {"ab"}).ok());
  EXPECT_TRUE(assembler.Add(2, {"cd"}).ok());
  EXPECT_TRUE(assembler.Add(4, {"efghi"}).ok());
  EXPECT_THAT(completed_, ElementsAre(0, 1));
  EXPECT_TRUE(assembler.Add(9, {"j"}).ok());
  EXPECT_TRUE(assembler.Finish(Digest("abcdefghij")).ok());
  EXPECT_EQ(first_ + last_, "abcdefghij");
  EXPECT_THAT(completed_, ElementsAre(0, 1, 2));
  EXPECT_EQ(assembler.Digest().sha256(), Sha256Bytes("abcdefghij"));
}

TEST_F(FrameAssemblerTest, GapOverlapAndWrongStartNameTheOffset) {
  FrameAssembler assembler = Make();
  EXPECT_EQ(FieldOf(assembler.Add(1, {"a"})), "offset");
  EXPECT_TRUE(assembler.Add(0, {"ab"}).ok());
  EXPECT_EQ(FieldOf(assembler.Add(1, {"b"})), "offset");
  EXPECT_EQ(FieldOf(assembler.Add(3, {"d"})), "offset");
  EXPECT_EQ(FieldOf(assembler.Add(~std::uint64_t{0}, {"d"})), "offset");
  EXPECT_EQ(first_, "ab..");
}

TEST_F(FrameAssemblerTest, FrameOverTwoTensorsIsRefused) {
  FrameAssembler assembler = Make();
  const absl::Status status = assembler.Add(0, {"abcde"});
  EXPECT_EQ(FieldOf(status), "data");
  EXPECT_THAT(std::string(status.message()), HasSubstr("first"));
  EXPECT_EQ(first_, "....");
}

TEST_F(FrameAssemblerTest, TooMuchNamesHowMuch) {
  FrameAssembler assembler = Make();
  EXPECT_EQ(FieldOf(assembler.Add(0, {"abcdefghijk"})), "data");
  EXPECT_TRUE(assembler.Add(0, {"abcd"}).ok());
  EXPECT_TRUE(assembler.Add(4, {"efghij"}).ok());
  const absl::Status status = assembler.Add(10, {"k"});
  EXPECT_EQ(FieldOf(status), "data");
  EXPECT_THAT(std::string(status.message()), HasSubstr("within the 10 bytes"));
}

TEST_F(FrameAssemblerTest, OversizedFrameIsRefusedWhateverItsPlace) {
  FrameAssembler assembler = Make();
  EXPECT_EQ(FieldOf(assembler.Add(0, {std::string(kMaxFrameBytes + 1, 'x')})), "data");
}

TEST_F(FrameAssemblerTest, EarlyEndNamesTheTensorThatLacksBytes) {
  FrameAssembler assembler = Make();
  EXPECT_EQ(FieldOf(assembler.Finish({})), "first");
  EXPECT_TRUE(assembler.Add(0, {"abcd"}).ok());
  const absl::Status status = assembler.Finish({});
  EXPECT_EQ(FieldOf(status), "last");
  EXPECT_THAT(std::string(status.message()), HasSubstr("0 bytes"));
}

TEST_F(FrameAssemblerTest, WrongDigestIsRefused) {
  FrameAssembler assembler = Make();
  EXPECT_TRUE(assembler.Add(0, {"abcd"}).ok());
  EXPECT_TRUE(assembler.Add(4, {"efghij"}).ok());
  EXPECT_EQ(FieldOf(assembler.Finish(Digest("abcdefghiJ"))), "sha256");
  EXPECT_TRUE(assembler.Finish({}).ok());
}

TEST_F(FrameAssemblerTest, RefusalOfACompleteTensorComesWithItsLastByte) {
  complete_status_ = InvalidField("first", "bad", "good");
  FrameAssembler assembler = Make();
  EXPECT_TRUE(assembler.Add(0, {"abc"}).ok());
  EXPECT_EQ(FieldOf(assembler.Add(3, {"d"})), "first");
}

TEST_F(FrameAssemblerTest, PayloadOfEmptyTensorsIsCompleteWithoutAFrame) {
  std::string nothing;
  FrameAssembler assembler({Segment("a", &nothing), Segment("b", &nothing)});
  EXPECT_TRUE(assembler.Finish(Digest("")).ok());
}

}  // namespace
}  // namespace keval::server
