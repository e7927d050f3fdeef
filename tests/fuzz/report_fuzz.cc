// A report.json from a server that says anything, rendered as Markdown and as JUnit XML.
#include <pugixml.hpp>

#include "base/text.h"
#include "client/report/junit.h"
#include "client/report/markdown.h"
#include "core/verdict/json.h"
#include "core/verdict/strict_json.h"
#include "tests/fuzz/fuzz_target.h"

using keval::fuzz::Require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const absl::string_view text = keval::fuzz::AsText(data, size);
  // What `keval verdict --config report.json` does.
  if (const auto config = keval::verdict::ConfigFromJson(text); !config.ok()) {
    keval::fuzz::RequireRefusal(config.status());
  }
  // As the command line reads a report.
  const auto report = keval::verdict::ParseStrictJson("report.json", text);
  if (!report.ok() || !report->is_object()) return 0;
  Require(keval::IsValidUtf8(keval::report::RenderMarkdown(*report)), "Markdown is UTF-8");
  const std::string junit = keval::report::RenderJunit(*report);
  Require(keval::IsValidUtf8(junit), "JUnit is UTF-8");
  pugi::xml_document document;
  const pugi::xml_parse_result parsed = document.load_buffer(junit.data(), junit.size());
  Require(static_cast<bool>(parsed), parsed.description());
  return 0;
}
