#include "client/tensor_file/safetensors.h"

#include <cstring>
#include <ostream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "tests/unit/client/temporary_folder.h"

namespace keval::tensor_file {
namespace {

using ::testing::HasSubstr;

std::string File(const std::string& header, std::size_t payload_bytes) {
  std::string length;
  for (int i = 0; i < 8; ++i) length += static_cast<char>((header.size() >> (8 * i)) & 0xFF);
  return length + header + std::string(payload_bytes, '\1');
}

Tensor Filled(DType dtype, std::vector<std::int64_t> shape, int first) {
  auto tensor = *Tensor::Allocate("t", dtype, std::move(shape));
  for (std::size_t i = 0; i < tensor.mutable_bytes().size(); ++i) {
    tensor.mutable_bytes()[i] = static_cast<std::byte>(first + static_cast<int>(i));
  }
  return tensor;
}

TEST(SafetensorsTest, ReadsBackWhatItWrote) {
  const TemporaryFolder folder;
  std::vector<NamedTensor> tensors;
  tensors.push_back({"hidden", Filled(DType::kBFloat16, {1, 3}, 1)});
  tensors.push_back({"targets", Filled(DType::kInt64, {3}, 7)});
  tensors.push_back({"empty", Filled(DType::kFloat32, {0, 8}, 0)});
  tensors.push_back({"scalar", Filled(DType::kFloat64, {}, 9)});
  tensors.push_back({"na\"me\n", Filled(DType::kInt32, {2}, 3)});
  const std::string path = folder.File("out.safetensors");
  ASSERT_TRUE(WriteSafetensors(path, tensors).ok());
  const auto read = ReadSafetensors(path);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), tensors.size());
  for (const NamedTensor& want : tensors) {
    bool found = false;
    for (const NamedTensor& got : *read) {
      if (got.name != want.name) continue;
      found = true;
      EXPECT_EQ(got.tensor.dtype(), want.tensor.dtype());
      EXPECT_EQ(got.tensor.shape(), want.tensor.shape());
      EXPECT_EQ(got.tensor.bytes(), want.tensor.bytes());
    }
    EXPECT_TRUE(found) << want.name;
  }
  EXPECT_EQ(folder.CountFiles(), 1U);  // No temporary file is left.
}

TEST(SafetensorsTest, BytesDoNotDependOnOrder) {
  const TemporaryFolder folder;
  std::vector<NamedTensor> one;
  one.push_back({"a", Filled(DType::kInt32, {2}, 1)});
  one.push_back({"b", Filled(DType::kInt64, {2}, 2)});
  std::vector<NamedTensor> other;
  other.push_back({"b", Filled(DType::kInt64, {2}, 2)});
  other.push_back({"a", Filled(DType::kInt32, {2}, 1)});
  ASSERT_TRUE(WriteSafetensors(folder.File("one"), one).ok());
  ASSERT_TRUE(WriteSafetensors(folder.File("other"), other).ok());
  EXPECT_EQ(folder.Read("one"), folder.Read("other"));
}

// Case 9: the header says 1234, not 1.234 or 1,234 (run under LC_ALL=de_DE.UTF-8 by the command line's tests).
TEST(SafetensorsTest, HeaderNumbersHaveNoGroups) {
  const NamedTensor named{"logp", Filled(DType::kFloat32, {1234}, 0)};
  EXPECT_THAT(FormatSafetensorsHeader({&named}), HasSubstr("\"shape\":[1234],\"data_offsets\":[0,4936]"));
}

// Case 5.
TEST(SafetensorsTest, RefusesAShapeWhoseProductWraps) {
  const auto read = ReadSafetensors(KEVAL_TEST_CASES_DIR "/reports/safetensors_shape_product_wraps.safetensors");
  EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(GetFieldViolation(read.status())->field, "weight");
  EXPECT_THAT(std::string(read.status().message()), HasSubstr("[4294967296, 4294967296]"));
}

TEST(SafetensorsTest, RefusalsCarryFieldValueAndLimit) {
  const TemporaryFolder folder;
  const std::string header = R"({"hidden":{"dtype":"F32","shape":[-2,-3],"data_offsets":[0,24]}})";
  const auto violation =
      GetFieldViolation(ReadSafetensors(folder.Write("in.safetensors", File(header, 24))).status()).value();
  EXPECT_EQ(violation.field, "hidden");
  EXPECT_EQ(violation.value, "shape [-2, -3]");
  EXPECT_EQ(violation.limit, "a list of whole numbers in [0, 2^63)");
}

struct Bad {
  const char* name;
  std::string file;
  const char* message;  // What the error must name.
  // What a failure says, in place of its bytes.
  friend void PrintTo(const Bad& bad, std::ostream* out) { *out << bad.name; }
};

class BadSafetensorsTest : public ::testing::TestWithParam<Bad> {};

TEST_P(BadSafetensorsTest, IsRefusedByName) {
  const TemporaryFolder folder;
  const auto read = ReadSafetensors(folder.Write("in.safetensors", GetParam().file));
  EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument) << read.status();
  EXPECT_THAT(std::string(read.status().message()), HasSubstr(GetParam().message));
}

std::string Entry(const char* name, const char* dtype, const std::string& shape, const char* offsets) {
  return absl::StrCat("\"", name, "\":{\"dtype\":\"", dtype, "\",\"shape\":", shape, ",\"data_offsets\":", offsets,
                      "}");
}

std::string ManyDimensions() {
  std::string shape = "[-1";
  for (int i = 0; i < 9999; ++i) shape += ",1";
  return shape + "]";
}

INSTANTIATE_TEST_SUITE_P(
    Files, BadSafetensorsTest,
    ::testing::Values(
        Bad{"Empty", "", "8 bytes or more"}, Bad{"SevenBytes", std::string(7, '\0'), "8 bytes or more"},
        Bad{"NoHeader", std::string(8, '\0'), "first character"},
        Bad{"HugeLength", std::string("\0\0\0\0\0\0\0\x80", 8) + "{}", "9223372036854775808"},
        Bad{"AllOnesLength", std::string(8, '\xFF') + "{}", "18446744073709551615"},
        Bad{"LengthPastEnd", std::string("\x03\0\0\0\0\0\0\0", 8) + "{}", "at most 2"},
        Bad{"LeadingBlank", File(" {}", 0), "first character"}, Bad{"NotJson", File("{\"a\":", 0), "valid JSON"},
        Bad{"Trailing", File("{}x", 0), "valid JSON"}, Bad{"List", File("[]", 0), "first character"},
        Bad{"UnknownDtype", File("{" + Entry("weight", "F8_E4M3", "[4]", "[0,4]") + "}", 4), "weight: dtype F8_E4M3"},
        Bad{"Duplicate",
            File("{" + Entry("weight", "F32", "[1]", "[0,4]") + "," + Entry("weight", "F32", "[1]", "[4,8]") + "}", 8),
            "weight: a key given twice"},
        Bad{"DuplicateEscaped",
            File("{" + Entry("a", "F32", "[1]", "[0,4]") + "," + Entry("\\u0061", "F32", "[1]", "[4,8]") + "}", 8),
            "a: a key given twice"},
        Bad{"Overlap",
            File("{" + Entry("a", "F32", "[2]", "[0,8]") + "," + Entry("b", "F32", "[2]", "[4,12]") + "}", 12),
            "b: data_offsets begin at 4, which must be 8: its bytes overlap"},
        Bad{"Gap", File("{" + Entry("a", "F32", "[1]", "[0,4]") + "," + Entry("b", "F32", "[1]", "[8,12]") + "}", 12),
            "bytes before it are unused"},
        Bad{"GapAtStart", File("{" + Entry("a", "F32", "[1]", "[4,8]") + "}", 8), "bytes before it are unused"},
        Bad{"TrailingBytes", File("{" + Entry("a", "F32", "[1]", "[0,4]") + "}", 5), "bytes trail"},
        Bad{"OnlyBytes", File("{}", 5), "bytes trail"},
        Bad{"Truncated", File("{" + Entry("a", "F32", "[2]", "[0,8]") + "}", 7), "within the 7 bytes"},
        Bad{"OffsetsBackwards", File("{" + Entry("a", "F32", "[1]", "[4,0]") + "}", 4), "ascending"},
        Bad{"SizeMismatch", File("{" + Entry("a", "F32", "[2]", "[0,4]") + "}", 4), "the 8 bytes of shape [2]"},
        Bad{"Claims2To63", File("{" + Entry("a", "F32", "[2305843009213693952]", "[0,4]") + "}", 4), "2^63 bytes"},
        Bad{"DimensionPastInt64", File("{" + Entry("a", "F32", "[9223372036854775808,3]", "[0,4]") + "}", 4),
            "a: shape [9223372036854775808, 3] must be"},
        Bad{"HiddenZero", File("{" + Entry("a", "F32", "[1099511627776,0,1099511627776]", "[0,0]") + "}", 0),
            "a: [1099511627776, 0, 1099511627776] must be a shape with fewer than 2^63 elements"},
        Bad{"Dimensions17", File("{" + Entry("a", "F32", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0,4]") + "}", 4),
            "a: 17 dimensions must be at most 16 dimensions"},
        Bad{"Negative", File("{" + Entry("a", "F32", "[-2,-3]", "[0,4]") + "}", 4), "a: shape [-2, -3] must be"},
        Bad{"Fraction", File("{" + Entry("a", "F32", "[1.0]", "[0,4]") + "}", 4), "a: shape [1.0] must be"},
        Bad{"TextDimension", File("{" + Entry("a", "F32", "[\"1\"]", "[0,4]") + "}", 4), "a: shape [\"1\"] must be"},
        Bad{"NumberShape", File("{" + Entry("a", "F32", "1", "[0,4]") + "}", 4), "a: shape 1 must be"},
        Bad{"ThreeOffsets", File("{" + Entry("a", "F32", "[1]", "[0,4,4]") + "}", 4),
            "a: data_offsets [0, 4, 4] must be two whole numbers in [0, 2^63)"},
        Bad{"NegativeOffset", File("{" + Entry("a", "F32", "[1]", "[-4,0]") + "}", 4),
            "a: data_offsets [-4, 0] must be"},
        Bad{"ManyDimensions", File("{" + Entry("a", "F32", ManyDimensions(), "[0,4]") + "}", 4),
            "\xE2\x80\xA6 must be a list of whole numbers"},
        Bad{"UnknownKey", File("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4), "a: x"},
        Bad{"NoShape", File("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4), "a: shape left out"},
        Bad{"NoDtype", File("{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4), "a: dtype left out"},
        Bad{"DtypeIsNumber", File("{\"a\":{\"dtype\":32,\"shape\":[1],\"data_offsets\":[0,4]}}", 4), "a: dtype 32"},
        Bad{"EntryIsNumber", File("{\"a\":1}", 0), "a: 1 must be an object"},
        Bad{"Metadata", File("{\"__metadata__\":{\"a\":1}}", 0), "__metadata__: a 1 must be a text"},
        Bad{"Deep", File("{\"a\":" + std::string(100000, '[') + "}", 0), "nested at most"}),
    [](const auto& info) { return info.param.name; });

TEST(SafetensorsTest, AcceptsMetadataPaddingAndEmptyTensors) {
  const TemporaryFolder folder;
  const std::string header = "{\"__metadata__\":{\"format\":\"pt\"}," + Entry("z", "F32", "[0,4]", "[0,0]") + "," +
                             Entry("a", "F32", "[1]", "[0,4]") + "}   ";
  const auto read = ReadSafetensors(folder.Write("in", File(header, 4)));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->size(), 2U);
}

TEST(SafetensorsTest, MissingFileIsNotFoundAndFoldersAreRefused) {
  const TemporaryFolder folder;
  EXPECT_EQ(ReadSafetensors(folder.File("absent")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadSafetensors(folder.path().string()).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadSafetensors("/dev/zero").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(SafetensorsTest, LeavesWhatWasThereOnFailure) {
  const TemporaryFolder folder;
  const std::string path = folder.Write("out", "precious");
  std::vector<NamedTensor> twice;
  twice.push_back({"a", Filled(DType::kInt32, {2}, 1)});
  twice.push_back({"a", Filled(DType::kInt32, {2}, 1)});
  EXPECT_EQ(WriteSafetensors(path, twice).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(folder.Read("out"), "precious");
  EXPECT_EQ(WriteSafetensors("/dev/null", {}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(WriteSafetensors(folder.File("no/such/folder"), {}).code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace keval::tensor_file
