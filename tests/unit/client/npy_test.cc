#include "client/tensor_file/npy.h"

#include <bit>
#include <cmath>
#include <ostream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/field_error.h"
#include "tests/unit/client/temporary_folder.h"

namespace keval::tensor_file {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kCases = KEVAL_TEST_CASES_DIR "/reports/";

std::string File(const std::string& dict, const std::string& payload) {
  std::string file = "\x93NUMPY";
  file += {'\1', '\0', static_cast<char>(dict.size() & 0xFF), static_cast<char>(dict.size() >> 8)};
  return file + dict + payload;
}

std::string Dict(const std::string& descr, const std::string& shape, const std::string& fortran = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }\n";
}

std::vector<double> Values(const Tensor& tensor) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < tensor.num_elements(); ++i) values.push_back(tensor.At(i));
  return values;
}

// Case 6: a transposed read of weight would not be noticed by its shape.
TEST(NpyTest, ConvertsFortranOrder) {
  std::ifstream in(kCases + "npy_fortran_order.json");
  const auto right = nlohmann::json::parse(in);
  for (const char* name : {"hidden", "weight", "targets", "grad_logp"}) {
    const auto read = ReadNpy(kCases + "npy_fortran_order." + name + ".npy", std::nullopt);
    ASSERT_TRUE(read.ok()) << read.status();
    std::vector<double> want;
    for (const auto& row : right[name]) {
      if (row.is_array()) {
        for (const auto& value : row) want.push_back(value.get<double>());
      } else {
        want.push_back(row.get<double>());
      }
    }
    EXPECT_EQ(Values(*read), want) << name;
  }
}

TEST(NpyTest, ConvertsFortranOrderOfThreeDimensions) {
  const TemporaryFolder folder;
  std::string payload;
  for (int i = 0; i < 24; ++i) payload += {static_cast<char>(i), '\0', '\0', '\0'};
  const auto read = ReadNpy(folder.Write("in.npy", File(Dict("<i4", "(2, 3, 4)", "True"), payload)), std::nullopt);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->shape(), (std::vector<std::int64_t>{2, 3, 4}));
  // Element [i, j, k] was stored at i + 2j + 6k.
  EXPECT_EQ(read->At(0 * 12 + 1 * 4 + 2), 0 + 2 * 1 + 6 * 2);
  EXPECT_EQ(read->At(1 * 12 + 2 * 4 + 3), 1 + 2 * 2 + 6 * 3);
}

// Case 7.
TEST(NpyTest, RefusesVoidWithoutAStatedTypeAndReadsItWithOne) {
  const std::string path = kCases + "npy_bfloat16_as_void.npy";
  for (const auto stated : {std::optional<DType>(), std::optional(DType::kFloat16), std::optional(DType::kFloat32)}) {
    const auto refused = ReadNpy(path, stated);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("'<V2'"));
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("--dtype bfloat16"));
  }
  const auto read = ReadNpy(path, DType::kBFloat16);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(Values(*read), ElementsAre(1, -2.5, 3.140625, 65536, 0, -0.0078125, 448, -1));
}

TEST(NpyTest, RoundsFloat32ToStatedBFloat16) {
  const TemporaryFolder folder;
  const float values[] = {1.00390625F, 1.01171875F, std::bit_cast<float>(0x7F800001U)};
  const std::string payload(reinterpret_cast<const char*>(values), sizeof(values));
  const auto read = ReadNpy(folder.Write("in.npy", File(Dict("<f4", "(3,)"), payload)), DType::kBFloat16);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->dtype(), DType::kBFloat16);
  EXPECT_EQ(read->At(0), 1.0);
  EXPECT_EQ(read->At(1), 1.015625);
  EXPECT_TRUE(std::isnan(read->At(2)));
}

TEST(NpyTest, ReadsBackWhatItWrote) {
  const TemporaryFolder folder;
  for (const std::vector<std::int64_t>& shape : std::vector<std::vector<std::int64_t>>{{}, {1234}, {0, 8}, {2, 3}}) {
    auto tensor = *Tensor::Allocate("t", DType::kBFloat16, shape);
    for (auto& byte : tensor.mutable_bytes()) byte = std::byte{0x3F};
    ASSERT_TRUE(WriteNpy(folder.File("out.npy"), tensor).ok());
    const auto read = ReadNpy(folder.File("out.npy"), DType::kBFloat16);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->shape(), shape);
    EXPECT_EQ(read->bytes(), tensor.bytes());
  }
}

TEST(NpyTest, WritesNumpysOwnHeader) {
  const TemporaryFolder folder;
  auto tensor = *Tensor::Allocate("t", DType::kFloat32, {1234});
  ASSERT_TRUE(WriteNpy(folder.File("out.npy"), tensor).ok());
  const std::string file = folder.Read("out.npy");
  EXPECT_THAT(file.substr(10, 118), HasSubstr("{'descr': '<f4', 'fortran_order': False, 'shape': (1234,), }"));
  EXPECT_EQ((file.size() - 4936) % 64, 0U);
  EXPECT_EQ(file[file.size() - 4936 - 1], '\n');
}

struct Bad {
  const char* name;
  std::string file;
  const char* message;
  // What a failure says, in place of its bytes.
  friend void PrintTo(const Bad& bad, std::ostream* out) { *out << bad.name; }
};
class BadNpyTest : public ::testing::TestWithParam<Bad> {};

TEST_P(BadNpyTest, IsRefusedByName) {
  const TemporaryFolder folder;
  const auto read = ReadNpy(folder.Write("in.npy", GetParam().file), std::nullopt);
  EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument) << read.status();
  EXPECT_THAT(std::string(read.status().message()), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Files, BadNpyTest,
    ::testing::Values(
        Bad{"Empty", "", "magic"}, Bad{"Magic", "\x93NUMPX\1\0\0\0ab", "magic"},
        Bad{"Version", std::string("\x93NUMPY\4\0\0\0\0\0", 12), "format 4.0"},
        Bad{"HeaderLength", std::string("\x93NUMPY\2\0\xFF\xFF\xFF\xFF", 12), "header length 4294967295"},
        Bad{"BigEndian", File(Dict(">f4", "(1,)"), "abcd"), "'>f4'"},
        Bad{"Object", File(Dict("|O", "(1,)"), "abcdefgh"), "'|O'"},
        Bad{"Bool", File(Dict("|b1", "(1,)"), "a"), "'|b1'"},
        Bad{"Structured", File("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }\n", "abcd"),
            "descr [('a', '<f4')] must be"},
        Bad{"Truncated", File(Dict("<f4", "(2,)"), "abcd"), "truncated"},
        Bad{"Trailing", File(Dict("<f4", "(1,)"), "abcde"), "bytes trail"},
        Bad{"Wraps", File(Dict("<f4", "(4294967296, 4294967296)"), ""), "[4294967296, 4294967296]"},
        Bad{"Claims2To63", File(Dict("<f4", "(9223372036854775807,)"), ""), "9223372036854775807"},
        Bad{"PastInt64", File(Dict("<f4", "(9223372036854775808,)"), ""),
            "shape (9223372036854775808,) must be a tuple of whole numbers in [0, 2^63)"},
        Bad{"Negative", File(Dict("<f4", "(-2, -3)"), ""), "shape (-2, -3) must be"},
        Bad{"NumberShape", File(Dict("<f4", "(1)"), "abcd"), "shape (1) must be"},
        Bad{"ListShape", File(Dict("<f4", "[1, 2]"), "abcd"), "shape [1, 2] must be"},
        Bad{"TextShape", File(Dict("<f4", "'wide'"), "abcd"), "shape 'wide' must be"},
        Bad{"Dimensions17", File(Dict("<f4", "(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)"), "abcd"),
            "shape 17 dimensions must be at most 16 dimensions"},
        Bad{"Twice", File("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", "abcd"), "descr"},
        Bad{"UnknownKey", File("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}", "abcd"), "key x"},
        Bad{"MissingKey", File("{'descr': '<f4', 'shape': (1,)}", "abcd"), "fortran_order left out"},
        Bad{"Fortran", File(Dict("<f4", "(1,)", "1"), "abcd"), "fortran_order 1 must be"},
        Bad{"Code", File("__import__('os')", ""), "dict"},
        Bad{"After", File(Dict("<f4", "(1,)") + "x", "abcd"), "nothing but"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace keval::tensor_file
