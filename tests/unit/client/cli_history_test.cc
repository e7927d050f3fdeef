// Past jobs told apart by what they ran on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "base/field_error.h"
#include "client/cli/job_history.h"

namespace keval::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

v1::BenchmarkJob Job(const std::string& id) {
  v1::BenchmarkJob job;
  job.set_name("jobs/" + id);
  job.set_state(v1::BenchmarkJob::DONE);
  job.set_verdict("IMPROVED");
  job.set_create_time_unix_ms(1796033537049);
  return job;
}

Json Report(const std::string& driver) {
  return {{"environment",
           {{"gpu_uuid", "GPU-1"}, {"driver_version", driver}, {"cpu_load_average", driver}, {"worker_sha256", "ab"}}},
          {"series",
           {{{"series", "s1"},
             {"role", "primary"},
             {"status", "improved"},
             {"n", 6},
             {"L", 0.01},
             {"sup_lo", 0.008},
             {"sup_hi", 0.012}},
            {{"series", "s2"}, {"role", "guard"}, {"status", "no_look"}, {"n", 0}}}}};
}

TEST(JobHistory, ReadsFingerprintAndSeries) {
  const PastJob past = ReadPastJob(Job("a"), Report("580.1"));
  ASSERT_TRUE(past.fingerprint.has_value());
  EXPECT_EQ(past.fingerprint->at("driver_version"), "580.1");
  EXPECT_EQ(past.fingerprint->count("cpu_load_average"), 0U);  // It changes by the minute.
  ASSERT_EQ(past.series.size(), 2U);
  EXPECT_EQ(*past.series[0].L, 0.01);
  EXPECT_EQ(past.series[0].rounds, 6);
  EXPECT_FALSE(past.series[1].L.has_value());
}

// Each changes what a call takes, or what the figures mean.
TEST(JobHistory, WhatTimesDependOnIsCompared) {
  for (const char* fact : {"gpu_power_limit", "tf32", "reduced_precision_float16", "reduced_precision_bfloat16",
                           "deterministic_algorithms", "cublas_workspace", "libtorch_cpu_capability"}) {
    Json other = Report("580.1");
    other["environment"][fact] = "another";
    const std::vector<PastJob> jobs = {ReadPastJob(Job("b"), other), ReadPastJob(Job("a"), Report("580.1"))};
    EXPECT_THAT(std::string(CheckComparable(jobs).message()), HasSubstr(fact));
  }
  Json procedure = Report("580.1");
  procedure["versions"]["procedure"] = "3";
  EXPECT_FALSE(CheckComparable({ReadPastJob(Job("b"), procedure), ReadPastJob(Job("a"), Report("580.1"))}).ok());
  const auto locked = [](const char* text) {
    Json report = Report("580.1");
    report["environment"]["gpu_clock_lock"] = text;
    return ReadPastJob(Job("a"), report);
  };
  EXPECT_FALSE(CheckComparable({locked("locked to 1200 MHz while the job ran"), locked("not locked: why")}).ok());
  EXPECT_TRUE(CheckComparable({locked("not locked: not asked for"), locked("not locked: why")}).ok());
}

TEST(JobHistory, AReportOfAnythingIsRead) {
  for (const char* text :
       {"{}", "[]", "null", R"({"series": 1, "environment": []})", R"({"series": [1, {"L": "nan"}]})"}) {
    const PastJob past = ReadPastJob(Job("a"), Json::parse(text));
    EXPECT_THAT(HistoryText({past}), HasSubstr("jobs/a")) << text;
  }
  EXPECT_FALSE(ReadPastJob(Job("a"), Json::parse("{}")).fingerprint.has_value());
}

TEST(JobHistory, OneFingerprintCompares) {
  const std::vector<PastJob> jobs = {ReadPastJob(Job("b"), Report("580.1")), PastJob{.job = Job("q")},
                                     ReadPastJob(Job("a"), Report("580.1"))};
  EXPECT_TRUE(CheckComparable(jobs).ok());
  EXPECT_TRUE(CheckComparable({}).ok());
  const auto json = HistoryToJson("digest", jobs);
  EXPECT_EQ(json.at("spec_digest"), "digest");
  EXPECT_EQ(json.at("fingerprints").size(), 1U);
  EXPECT_EQ(json.at("jobs")[0].at("fingerprint"), 0);
  EXPECT_TRUE(json.at("jobs")[1].at("fingerprint").is_null());
  EXPECT_EQ(json.at("jobs")[2].at("series")[0].at("sup_hi"), 0.012);
  EXPECT_TRUE(json.at("jobs")[2].at("series")[1].at("L").is_null());
  EXPECT_THAT(HistoryText(jobs), Not(HasSubstr("not comparable")));
  EXPECT_THAT(HistoryText(jobs), HasSubstr("+1.01 % [+0.80 %, +1.21 %]  6 rounds  improved"));
}

TEST(JobHistory, DifferentFingerprintsAreRefusedByWhatChanged) {
  const std::vector<PastJob> jobs = {ReadPastJob(Job("c"), Report("580.2")), ReadPastJob(Job("b"), Report("580.1")),
                                     ReadPastJob(Job("a"), Report("580.2"))};
  const absl::Status status = CheckComparable(jobs);
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_EQ(GetFieldViolation(status)->field, "fingerprint");
  EXPECT_THAT(std::string(status.message()), HasSubstr("jobs/b to jobs/c: driver_version 580.1 -> 580.2"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("1 of the jobs"));
  const auto json = HistoryToJson("digest", jobs);
  ASSERT_EQ(json.at("fingerprints").size(), 2U);
  EXPECT_TRUE(json.at("fingerprints")[0].at("changed").empty());
  EXPECT_EQ(json.at("fingerprints")[1].at("changed")[0].at("fact"), "driver_version");
  EXPECT_EQ(json.at("jobs")[1].at("fingerprint"), 1);
  EXPECT_EQ(json.at("jobs")[2].at("fingerprint"), 0);
  EXPECT_THAT(HistoryText(jobs), HasSubstr("-- not comparable with what is above: driver_version 580.1 -> 580.2"));
}

TEST(JobHistory, ChangesNameWhatOneSideDoesNotTell) {
  const auto changes = Changes({{"a", "1"}, {"b", "2"}}, {{"b", "3"}, {"c", "4"}});
  std::vector<std::string> shown;
  for (const FactChange& change : changes) shown.push_back(change.fact + ":" + change.before + ":" + change.after);
  EXPECT_THAT(shown, ElementsAre("a:1:", "b:2:3", "c::4"));
}

TEST(JobHistory, NamesCannotSteerATerminal) {
  auto job = Job("a");
  job.set_reason("\x1b[31m");
  PastJob past = ReadPastJob(job, Report("\x1b]0;x"));
  past.series[0].series = "s\x1b[2J";
  EXPECT_THAT(HistoryText({past, ReadPastJob(Job("b"), Report("other"))}), Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace keval::cli
