#include "tests/support/linear_logp_cases.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace keval::test_support {
namespace {

using nlohmann::json;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

absl::Status Malformed(absl::string_view file, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("tests/cases/", file, ": ", what));
}

absl::StatusOr<json> ReadJson(absl::string_view file) {
  const std::filesystem::path path = std::filesystem::path(KEVAL_TEST_CASES_DIR) / std::string(file);
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return Malformed(file, "can't be opened");
  const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  json document = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded()) return Malformed(file, "is not JSON");
  return document;
}

// Appends `node`, a number or any nesting of arrays of them, in row-major order.
bool Flatten(const json& node, std::vector<double>* values) {
  if (node.is_array()) {
    return std::all_of(node.begin(), node.end(), [values](const json& child) { return Flatten(child, values); });
  }
  if (node.is_number()) {
    values->push_back(node.get<double>());
    return true;
  }
  if (node == "nan") {
    values->push_back(std::numeric_limits<double>::quiet_NaN());
  } else if (node == "inf") {
    values->push_back(kInfinity);
  } else if (node == "-inf") {
    values->push_back(-kInfinity);
  } else {
    return false;
  }
  return true;
}

// Reads keys of one object and keeps the first thing that was wrong.
class Reader {
 public:
  Reader(absl::string_view file, const json& object) : file_(file), object_(object) {}

  std::string Text(const char* key) {
    const json& node = Get(key);
    if (!node.is_string()) {
      Fail(key, "is not text");
      return "";
    }
    return node.get<std::string>();
  }

  std::int64_t Integer(const char* key) {
    const json& node = Get(key);
    if (!node.is_number_integer()) {
      Fail(key, "is not an integer");
      return 0;
    }
    return node.get<std::int64_t>();
  }

  std::vector<double> Numbers(const char* key, std::int64_t count) {
    std::vector<double> values;
    if (!Flatten(Get(key), &values)) Fail(key, "is not numbers");
    if (static_cast<std::int64_t>(values.size()) != count) {
      Fail(key, absl::StrCat("has ", values.size(), " values, not ", count));
    }
    return values;
  }

  std::optional<std::vector<double>> NumbersOrNull(const char* key, std::int64_t count) {
    if (Get(key).is_null()) return std::nullopt;
    return Numbers(key, count);
  }

  const absl::Status& status() const { return status_; }

 private:
  const json& Get(const char* key) const {
    static const json kNull;
    const auto found = object_.find(key);
    return found == object_.end() ? kNull : *found;
  }

  void Fail(const char* key, absl::string_view what) {
    if (status_.ok()) status_ = Malformed(file_, absl::StrCat(key, " ", what));
  }

  absl::string_view file_;
  const json& object_;
  absl::Status status_;
};

// The numeric files of a folder, by name.
std::vector<std::string> FilesWithTensors(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(KEVAL_TEST_CASES_DIR) / folder)) {
    if (entry.path().extension() != ".json") continue;
    const std::string file = absl::StrCat(folder, "/", entry.path().filename().string());
    const absl::StatusOr<json> document = ReadJson(file);
    // A file that isn't JSON stays in the list, so that loading it fails; other kinds of case have no weight.
    if (!document.ok() || document->contains("weight")) files.push_back(file);
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

absl::StatusOr<LinearLogpCase> LoadLinearLogpCase(absl::string_view file) {
  const absl::StatusOr<json> document = ReadJson(file);
  if (!document.ok()) return document.status();
  if (!document->is_object()) return Malformed(file, "is not an object");

  Reader top(file, *document);
  LinearLogpCase result;
  result.name = top.Text("name");
  result.note = top.Text("note");
  const std::int64_t tokens = result.num_tokens = top.Integer("N");
  const std::int64_t width = result.hidden_size = top.Integer("D");
  const std::int64_t words = result.vocab_size = top.Integer("V");
  result.hidden = top.Numbers("hidden", tokens * width);
  result.weight = top.Numbers("weight", words * width);
  result.bias = top.NumbersOrNull("bias", words);
  for (const double target : top.Numbers("targets", tokens)) {
    result.targets.push_back(static_cast<std::int64_t>(target));
  }
  result.grad_logp = top.Numbers("grad_logp", tokens);
  if (!top.status().ok()) return top.status();

  if (!document->contains("expected")) return Malformed(file, "has no expected");
  Reader expected(file, (*document)["expected"]);
  result.expected.logp = expected.Numbers("logp", tokens);
  result.expected.grad_hidden = expected.Numbers("grad_hidden", tokens * width);
  result.expected.grad_weight = expected.Numbers("grad_weight", words * width);
  result.expected.grad_bias = expected.NumbersOrNull("grad_bias", words);
  if (!expected.status().ok()) return expected.status();
  return result;
}

absl::StatusOr<std::vector<LinearLogpCase>> LoadLinearLogpCases() {
  std::vector<LinearLogpCase> cases;
  for (const char* folder : {"linear_logp", "reports"}) {
    for (const std::string& file : FilesWithTensors(folder)) {
      absl::StatusOr<LinearLogpCase> loaded = LoadLinearLogpCase(file);
      if (!loaded.ok()) return loaded.status();
      cases.push_back(*std::move(loaded));
    }
  }
  return cases;
}

absl::StatusOr<std::vector<InvalidInput>> LoadInvalidInputs() {
  constexpr absl::string_view kFile = "linear_logp/invalid_inputs.json";
  const absl::StatusOr<json> document = ReadJson(kFile);
  if (!document.ok()) return document.status();
  std::vector<InvalidInput> inputs;
  for (const json& node : document->value("cases", json::array())) {
    Reader reader(kFile, node);
    InvalidInput input = {reader.Text("name"), reader.Text("change"), reader.Text("field")};
    if (!reader.status().ok()) return reader.status();
    inputs.push_back(std::move(input));
  }
  if (inputs.empty()) return Malformed(kFile, "has no cases");
  return inputs;
}

}  // namespace keval::test_support
