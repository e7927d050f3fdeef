#include "client/tensor_file/npy.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/field_error.h"
#include "base/file.h"
#include "base/shape.h"
#include "base/text.h"
#include "client/tensor_file/input_file.h"

namespace keval::tensor_file {
namespace {

constexpr absl::string_view kMagic = "\x93NUMPY";
constexpr std::int64_t kMaxHeaderBytes = 1 << 20;
constexpr std::size_t kHeaderAlignment = 64;

constexpr std::array<std::pair<absl::string_view, DType>, 6> kDescrs = {{{"<f4", DType::kFloat32},
                                                                         {"<f8", DType::kFloat64},
                                                                         {"<f2", DType::kFloat16},
                                                                         {"<i4", DType::kInt32},
                                                                         {"<i8", DType::kInt64},
                                                                         {"<V2", DType::kBFloat16}}};

absl::Status Refuse(absl::string_view path, absl::string_view field, absl::string_view value, absl::string_view limit) {
  const std::string shown = PrintableText(value, 256);
  return WithField(
      absl::InvalidArgumentError(absl::StrCat(PrintableText(path), ": ", field, " ", shown, " must be ", limit)),
      {std::string(field), shown, std::string(limit)});
}

bool IsVoid2(absl::string_view descr) { return descr == "<V2" || descr == "|V2"; }

// What the file's elements are.
absl::StatusOr<DType> StoredType(const std::string& path, const std::string& descr, std::optional<DType> stated) {
  if (IsVoid2(descr)) {
    if (stated == DType::kBFloat16) return DType::kBFloat16;
    return Refuse(path, "descr", absl::StrCat("'", descr, "'"),
                  "read with a stated element type: two bytes without a type, which numpy saves for bfloat16 "
                  "(say so by --dtype bfloat16)");
  }
  const auto known =
      std::find_if(kDescrs.begin(), kDescrs.end(), [&](const auto& entry) { return entry.first == descr; });
  if (known == kDescrs.end()) {
    const bool big_endian = !descr.empty() && descr.front() == '>';
    return Refuse(path, "descr", absl::StrCat("'", descr, "'"),
                  absl::StrCat("'<f4', '<f8', '<f2', '<i4' or '<i8'", big_endian ? ": big-endian is not read" : ""));
  }
  const bool rounds = known->second == DType::kFloat32 && stated == DType::kBFloat16;
  if (stated && *stated != known->second && !rounds) {
    return Refuse(path, "descr", absl::StrCat("'", descr, "'"),
                  absl::StrCat("of the stated type ", DTypeName(*stated)));
  }
  return known->second;
}

// A view of `tensor`'s memory as a file in Fortran order means it: the first index runs fastest.
TensorView FortranView(const Tensor& tensor) {
  TensorView view = tensor.view();
  std::int64_t stride = 1;
  for (const std::int64_t dimension : view.shape) {
    view.strides.push_back(stride);
    stride *= dimension;
  }
  return view;
}

absl::StatusOr<Tensor> RoundToBFloat16(const Tensor& from) {
  auto to = Tensor::Allocate("tensor", DType::kBFloat16, from.shape());
  if (!to.ok()) return to;
  for (std::int64_t i = 0; i < from.num_elements(); ++i) {
    float value = 0;
    std::memcpy(&value, from.bytes().data() + i * 4, sizeof(value));
    const std::uint16_t bits = BFloat16FromFloat(value);
    std::memcpy(to->mutable_bytes().data() + i * 2, &bits, sizeof(bits));
  }
  return to;
}

struct Layout {
  NpyHeader header;
  std::int64_t data_begin = 0;
};

absl::StatusOr<Layout> ReadLayout(const InputFile& file) {
  std::array<unsigned char, 12> start = {};
  const std::size_t available = std::min<std::size_t>(start.size(), static_cast<std::size_t>(file.size()));
  if (auto status = file.ReadAt(0, start.data(), available); !status.ok()) return status;
  if (available < 10 || !std::equal(kMagic.begin(), kMagic.end(), start.begin(),
                                    [](char a, unsigned char b) { return static_cast<unsigned char>(a) == b; })) {
    return Refuse(file.path(), "magic", "at its start", "that of an .npy file");
  }
  const int major = start[6];
  if (major < 1 || major > 3 || start[7] != 0) {
    return Refuse(file.path(), "format", absl::StrCat(major, ".", static_cast<int>(start[7])), "1.0, 2.0 or 3.0");
  }
  const std::size_t length_bytes = major == 1 ? 2 : 4;
  const auto header_begin = static_cast<std::int64_t>(8 + length_bytes);
  if (file.size() < header_begin) return Refuse(file.path(), "file", "", "longer: it is truncated");
  std::int64_t length = 0;
  for (std::size_t i = length_bytes; i-- > 0;) length = (length << 8) | start[8 + i];
  const std::int64_t limit = std::min(kMaxHeaderBytes, file.size() - header_begin);
  if (length > limit) {
    return Refuse(file.path(), "header length", absl::StrCat(length), absl::StrCat("at most ", limit));
  }
  std::string text(static_cast<std::size_t>(length), '\0');
  if (auto status = file.ReadAt(header_begin, text.data(), text.size()); !status.ok()) return status;
  auto header = ParseNpyHeader(text, file.path());
  if (!header.ok()) return header.status();
  return Layout{*std::move(header), header_begin + length};
}

}  // namespace

absl::StatusOr<Tensor> ReadNpy(const std::string& path, std::optional<DType> stated) {
  const auto file = InputFile::Open(path);
  if (!file.ok()) return file.status();
  const auto layout = ReadLayout(*file);
  if (!layout.ok()) return layout.status();
  const NpyHeader& header = layout->header;
  const auto dtype = StoredType(path, header.descr, stated);
  if (!dtype.ok()) return dtype.status();
  const auto bytes = NumBytes("shape", {*dtype, header.shape});
  if (!bytes.ok()) {
    const auto violation = GetFieldViolation(bytes.status()).value_or(FieldViolation());
    return Refuse(path, "shape", violation.value, violation.limit);
  }
  const std::int64_t present = file->size() - layout->data_begin;
  if (present != *bytes) {
    return Refuse(
        path, "data", absl::StrCat("of ", present, " bytes"),
        absl::StrCat(*bytes, " bytes for shape ", ShapeText(header.shape), " and descr '",
                     PrintableText(header.descr, 16), "'", present < *bytes ? ": it is truncated" : ": bytes trail"));
  }
  auto tensor = Tensor::Allocate("tensor", *dtype, header.shape);
  if (!tensor.ok()) return tensor;
  const auto to = tensor->mutable_bytes();
  if (auto status = file->ReadAt(layout->data_begin, to.data(), to.size()); !status.ok()) return status;
  if (header.fortran_order && header.shape.size() > 1) {
    tensor = Tensor::Copy("tensor", FortranView(*tensor));
    if (!tensor.ok()) return tensor;
  }
  if (stated == DType::kBFloat16 && *dtype == DType::kFloat32) return RoundToBFloat16(*tensor);
  return tensor;
}

absl::Status WriteNpy(const std::string& path, const Tensor& tensor) {
  const auto descr =
      std::find_if(kDescrs.begin(), kDescrs.end(), [&](const auto& entry) { return entry.second == tensor.dtype(); });
  const std::string shape =
      absl::StrCat("(", absl::StrJoin(tensor.shape(), ", "), tensor.shape().size() == 1 ? ",)" : ")");
  std::string dict = absl::StrCat("{'descr': '", descr->first, "', 'fortran_order': False, 'shape': ", shape, ", }");
  const std::size_t start = kMagic.size() + 4;
  dict.append(kHeaderAlignment - (start + dict.size() + 1) % kHeaderAlignment, ' ');
  dict += '\n';
  std::string header(kMagic);
  header += {'\1', '\0', static_cast<char>(dict.size() & 0xFF), static_cast<char>(dict.size() >> 8)};
  header += dict;
  auto file = AtomicFile::Create(path);
  if (!file.ok()) return file.status();
  if (auto status = file->Append(header.data(), header.size()); !status.ok()) return status;
  if (auto status = file->Append(tensor.bytes().data(), tensor.bytes().size()); !status.ok()) return status;
  return file->Commit();
}

}  // namespace keval::tensor_file
