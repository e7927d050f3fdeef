// Reports to render: one that holds everything, made from a trace of tests/cases/verdict.
#ifndef KEVAL_TESTS_UNIT_CLIENT_REPORT_TESTING_H_
#define KEVAL_TESTS_UNIT_CLIENT_REPORT_TESTING_H_

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/verdict/json.h"
#include "core/verdict/summary.h"
#include "core/verdict/verdict.h"

namespace keval::report {

using nlohmann::json;

inline std::string ReadCase(const std::string& path) {
  std::ifstream file(std::string(KEVAL_TEST_CASES_DIR) + "/" + path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The names of names_with_control_characters.json.
inline std::vector<std::string> HostileNames() {
  return json::parse(ReadCase("reports/names_with_control_characters.json"))["names"].get<std::vector<std::string>>();
}

// What a job adds to a series.
inline void AddJobsPart(json* series) {
  (*series)["display_name"] = "shape of " + (*series)["series"].get<std::string>();
  (*series)["delta_source"] = "default";
  (*series)["peaks"] = {{{"round", 0}, {"base_bytes", 2097152}, {"candidate_bytes", 1048576}},
                        {{"round", 1}, {"base_bytes", 2097152}, {"candidate_bytes", 1048577}}};
  (*series)["memory"] = {
      {"base_bytes", 2097152}, {"candidate_bytes", 1048576}, {"limit_bytes", 3145728}, {"met", true}};
  (*series)["dispatch"] = {
      {"base",
       {{"variant", "portable_matmul_add"}, {"path", "matmul_add"}, {"reason", "asked for"}, {"fallback", false}}},
      {"candidate",
       {{"variant", "portable_addmm"}, {"path", "addmm"}, {"reason", "both float32"}, {"fallback", false}}}};
  (*series)["ops"] = {{"base", {{"aten::mm", 8}, {"aten::add_", 8}}},
                      {"candidate", {{"aten::addmm_", 8}}},
                      {"difference", {{"aten::mm", -8}, {"aten::add_", -8}, {"aten::addmm_", 8}}}};
  (*series)["kernels"] = {
      {"base", {{"gemm", 8}}}, {"candidate", {{"gemm", 8}}}, {"difference", json::object()}, {"note", ""}};
  (*series)["kernel_ns"] = {
      {"base", {{"gemm", 2500000}}}, {"candidate", {{"gemm", 2000000}}}, {"difference", {{"gemm", -500000}}}};
  (*series)["dram"] = {{"base", {{"read_bytes", 3145728}, {"written_bytes", 1048576}}},
                       {"candidate", {{"read_bytes", 2097152}, {"written_bytes", 1048576}}},
                       {"difference", {{"read_bytes", -1048576}, {"written_bytes", 0}}},
                       {"note", ""}};
  (*series)["cycles"] = {{"L", 0.03}, {"gain_pct", 3.05}, {"least_mhz", 1965}, {"most_mhz", 1980}};
  (*series)["predicted_traffic"] = {{"chunk_tokens", 512},        {"chunks", 8},
                                    {"base_bytes", 8858370048},   {"candidate_bytes", 4563402752},
                                    {"saving_bytes", 4294967296}, {"add_ops_saved", 8}};
}

inline json MakeReport(const std::string& trace) {
  const auto config = verdict::ConfigFromJson(ReadCase("verdict/expected.json"));
  const auto samples = verdict::ParseSamples(ReadCase("verdict/" + trace + ".csv"));
  EXPECT_TRUE(config.ok() && samples.ok());
  const auto outcome = verdict::Decide(*samples, *config, {.memory = verdict::Memory::kMet});
  EXPECT_TRUE(outcome.ok()) << outcome.status();
  json report = json::parse(verdict::OutcomeToJson(*outcome).dump());
  report["format"] = "keval.report.v1";
  report["name"] = "jobs/0123456789abcdef0123456789abcdef";
  report["display_name"] = "nightly";
  report["failure_cause"] = "";
  report["config"] = json::parse(verdict::ConfigToJson(*config).dump());
  report["series"] = json::array();
  const auto summaries = verdict::Summarize(*samples, *config, *outcome);
  EXPECT_TRUE(summaries.ok());
  for (const auto& summary : *summaries) {
    json series = json::parse(verdict::SeriesToJson(summary).dump());
    AddJobsPart(&series);
    report["series"].push_back(series);
  }
  report["plan"] = {{"procedure_version", "1"}, {"predicted_device_seconds", 36.5}, {"seed", "9007199254740993"}};
  report["plan"]["series"] = {{{"series", "s1"},
                               {"role", "primary"},
                               {"delta", 0.01},
                               {"delta_source", "default"},
                               {"pilot_ns", 4000000},
                               {"quads", 6},
                               {"timed_repetitions", 3},
                               {"discarded_repetitions", 2}}};
  report["arms"] = {
      {"base", {{"variant", "portable_matmul_add"}, {"display_name", "the old way"}, {"sha256", "aa11"}}},
      {"candidate", {{"variant", "portable_addmm"}, {"display_name", "the new way"}, {"sha256", "bb22"}}}};
  report["versions"] = {{"keval", "0.1.0"}, {"libtorch", "2.11.0"}};
  report["environment"] = {{"cpu_model", "Example | CPU"}, {"governor", "performance"}};
  report["timed_region"] = {{"includes", "forward and backward"}, {"flush_bytes", 0}};
  report["rounds"] = {{{"round", 0}, {"seconds", 1234.5}, {"device_seconds", 1.25}}};
  report["blocks"] = json::array();
  for (int pos = 0; pos < 8; ++pos) {
    report["blocks"].push_back({{"round", 0},
                                {"series", "s1"},
                                {"quad", pos / 4},
                                {"pos", pos % 4},
                                {"arm", std::string(1, "ABBABAAB"[pos])},
                                {"before", {{"temperature_celsius", 40 + pos}, {"sm_clock_mhz", nullptr}}},
                                {"after", {{"temperature_celsius", 41 + pos}, {"sm_clock_mhz", nullptr}}}});
  }
  report["noise"] = {{"blocks", 8},
                     {"other_processes", {{"told", 8}, {"seen", 2}, {"most", 1}}},
                     {"throttle_reasons", {{"A", {{"power cap (software)", 3}}}, {"B", json::object()}}},
                     {"most_foreign_cpu_cores", 0.125}};
  report["contract"] = {{"passed", true}, {"rows", json::array()}};
  report["contract"]["rows"].push_back({{"id", "C1"},
                                        {"arm", "candidate"},
                                        {"case", "plain_bias"},
                                        {"measured", 1.5e-7},
                                        {"limit", 1e-6},
                                        {"status", "pass"},
                                        {"why", ""}});
  report["contract"]["rows"].push_back({{"id", "C12"},
                                        {"arm", "base"},
                                        {"case", "large"},
                                        {"measured", "nan"},
                                        {"limit", "inf"},
                                        {"status", "not_applicable"},
                                        {"why", "not enough memory"}});
  report["excluded"] = {{{"round", 2},
                         {"arm", "candidate"},
                         {"cause", "candidate"},
                         {"reason", "CRASHED"},
                         {"detail", "signal 11"},
                         {"rows", 12}}};
  report["diagnostics"] = {
      {{"name", "s1/chunks=4"},
       {"region", "forward_backward"},
       {"chunks", 4},
       {"predicted_saving_bytes", 33554432},
       {"base_ms", 4.5},
       {"candidate_ms", 4.25},
       {"L", 0.057},
       {"quads", 3}},
      {{"name", "s1/weight_gradient"}, {"region", "weight_gradient"}, {"absent", "candidate, OUT_OF_MEMORY: no room"}}};
  report["notes"] = {"No cache overwrite on a CPU."};
  report["files"] = {{{"name", "samples.csv"}, {"sha256", "cc33"}, {"bytes", 123456}}};
  report["recompute"] = "keval verdict samples.csv --config report.json";
  report["spec_digest"] = "dd44";
  report["create_time_unix_ms"] = 1796022348000;
  report["start_time_unix_ms"] = "1796022349000";
  report["end_time_unix_ms"] = 1796022385500;
  report["restarts"] = 1;
  return report;
}

// Every text that comes from outside is `name`.
inline json WithName(json report, const std::string& name) {
  report["display_name"] = name;
  report["detail"] = name;
  for (json& series : report["series"]) series["display_name"] = name;
  for (const char* arm : {"base", "candidate"}) {
    report["arms"][arm]["display_name"] = name;
    report["arms"][arm]["variant"] = name;
  }
  report["contract"]["rows"][0]["why"] = name;
  report["excluded"][0]["detail"] = name;
  report["environment"][name] = name;
  report["notes"][0] = name;
  return report;
}

}  // namespace keval::report

#endif  // KEVAL_TESTS_UNIT_CLIENT_REPORT_TESTING_H_
