#include "client/cli/tensor_files.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "client/tensor_file/npy.h"

namespace keval::cli {
namespace {

using tensor_file::NamedTensor;

bool IsNpy(const std::string& path) { return absl::EndsWith(path, ".npy"); }

// "hidden" for "folder/a.hidden.npy".
std::string NameOf(const std::string& path) {
  const std::string stem = std::filesystem::path(path).stem().string();
  const std::size_t dot = stem.rfind('.');
  return dot == std::string::npos ? stem : stem.substr(dot + 1);
}

struct Source {
  std::string name;  // Empty: the file's own.
  std::string path;
};

Source ParseSource(const std::string& argument) {
  const std::size_t equals = argument.find('=');
  const bool named = equals != std::string::npos && equals > 0 && !std::filesystem::exists(argument);
  return named ? Source{argument.substr(0, equals), argument.substr(equals + 1)} : Source{"", argument};
}

}  // namespace

absl::StatusOr<std::vector<NamedTensor>> ReadTensors(const std::vector<std::string>& arguments, const std::string& only,
                                                     std::optional<DType> stated) {
  std::vector<NamedTensor> all;
  for (const std::string& argument : arguments) {
    const Source source = ParseSource(argument);
    if (IsNpy(source.path)) {
      auto tensor = tensor_file::ReadNpy(source.path, stated);
      if (!tensor.ok()) return tensor.status();
      all.push_back({source.name.empty() ? NameOf(source.path) : source.name, *std::move(tensor)});
      continue;
    }
    if (stated) return InvalidField("dtype", DTypeName(*stated), "left out: a .safetensors file states its types");
    auto tensors = tensor_file::ReadSafetensors(source.path);
    if (!tensors.ok()) return tensors.status();
    if (!source.name.empty()) {
      if (tensors->size() != 1) {
        return InvalidField(source.name, absl::StrCat(tensors->size(), " tensors"), "one, to be given this name");
      }
      tensors->front().name = source.name;
    }
    std::move(tensors->begin(), tensors->end(), std::back_inserter(all));
  }
  if (only.empty()) return all;
  const auto found = std::find_if(all.begin(), all.end(), [&](const NamedTensor& named) { return named.name == only; });
  if (found == all.end()) return InvalidField(only, "a tensor of this name", "in the file");
  std::vector<NamedTensor> one;
  one.push_back(std::move(*found));
  return one;
}

absl::StatusOr<NamedTensor> ReadOneTensor(const std::string& argument, const std::string& only,
                                          std::optional<DType> stated) {
  auto tensors = ReadTensors({argument}, only, stated);
  if (!tensors.ok()) return tensors.status();
  if (tensors->size() != 1) {
    return InvalidField("name", absl::StrCat("nothing, with ", tensors->size(), " tensors in the file,"),
                        "one of their names");
  }
  return std::move(tensors->front());
}

absl::Status WriteTensors(const std::string& path, const std::vector<NamedTensor>& tensors) {
  if (!IsNpy(path)) return tensor_file::WriteSafetensors(path, tensors);
  if (tensors.size() != 1) {
    return InvalidField("name", absl::StrCat(tensors.size(), " tensors for a .npy file"), "one (choose it by --name)");
  }
  return tensor_file::WriteNpy(path, tensors.front().tensor);
}

}  // namespace keval::cli
