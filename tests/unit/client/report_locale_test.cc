#include <gtest/gtest.h>

#include <clocale>
#include <locale>

#include "client/report/junit.h"
#include "client/report/markdown.h"
#include "tests/unit/client/report_testing.h"

namespace keval::report {
namespace {

TEST(ReportLocale, GermanChangesNoByte) {
  const json report = MakeReport("gain_3pct");
  const std::string markdown = RenderMarkdown(report);
  const std::string junit = RenderJunit(report);
  ASSERT_NE(std::setlocale(LC_ALL, "de_DE.UTF-8"), nullptr) << "scripts/bootstrap installs this locale";
  const std::locale before = std::locale::global(std::locale("de_DE.UTF-8"));
  const json german_report = MakeReport("gain_3pct");
  const std::string german_markdown = RenderMarkdown(german_report);
  const std::string german_junit = RenderJunit(german_report);
  std::locale::global(before);
  std::setlocale(LC_ALL, "C");
  EXPECT_EQ(german_report, report);
  EXPECT_EQ(german_markdown, markdown);
  EXPECT_EQ(german_junit, junit);
  EXPECT_NE(markdown.find("1234.50"), std::string::npos);
}

}  // namespace
}  // namespace keval::report
