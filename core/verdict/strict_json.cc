#include "core/verdict/strict_json.h"

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace keval::verdict {
namespace {

using Json = nlohmann::json;

constexpr int kMaxDepth = 64;

}  // namespace

absl::StatusOr<Json> ParseStrictJson(absl::string_view what, absl::string_view text) {
  std::vector<std::set<std::string>> open_objects;  // Keys seen so far.
  std::string fault;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) open_objects.emplace_back();
    if (event == Json::parse_event_t::object_end) open_objects.pop_back();
    if (event == Json::parse_event_t::key && fault.empty()) {
      const std::string key = value.get<std::string>();
      if (!open_objects.back().insert(key).second) {
        fault = absl::StrCat("key ", PrintableText(key, 80), " is given twice");
      }
    }
    if (depth > kMaxDepth && fault.empty()) fault = absl::StrCat("nested deeper than ", kMaxDepth, " levels");
    return true;
  };
  try {
    Json document = Json::parse(text.begin(), text.end(), watch);
    if (!fault.empty()) return absl::InvalidArgumentError(absl::StrCat(what, ": ", fault));
    return document;
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": not JSON: ", PrintableText(error.what(), 400)));
  }
}

}  // namespace keval::verdict
