#include "server/job_environment.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace keval::server {
namespace {

std::string Text(const std::map<std::string, std::string>& facts, const std::string& commit = "abc") {
  v1::BuildInfo build;
  build.set_commit(commit);
  return JsonText(EnvironmentJson(facts, build));
}

const std::map<std::string, std::string> kFacts = {
    {"gpu_uuid", "GPU-1"}, {"driver_version", "580.1"}, {"gpu_temperature", "40 C"}, {"cpu_load_average", "0.1"}};

std::map<std::string, std::string> With(const std::string& key, const std::string& text) {
  auto facts = kFacts;
  facts[key] = text;
  return facts;
}

TEST(JobEnvironmentTest, WhatVariesByItselfIsNoChange) {
  EXPECT_EQ(ChangedFacts(Text(kFacts), Text(kFacts)), "");
  EXPECT_EQ(ChangedFacts(Text(kFacts), Text(With("gpu_temperature", "71 C"))), "");
  EXPECT_EQ(ChangedFacts(Text(kFacts), Text(With("cpu_load_average", "9.9"))), "");
}

TEST(JobEnvironmentTest, DeviceDriverLibrariesAndBuildsAreNamed) {
  for (const char* key : {"gpu_uuid", "driver_version", "libtorch_version", "worker_sha256", "cuda_runtime",
                          "deterministic_algorithms", "operating_system"}) {
    EXPECT_EQ(ChangedFacts(Text(kFacts), Text(With(key, "another"))), key);
  }
  EXPECT_EQ(ChangedFacts(Text(kFacts), Text(kFacts, "def")), "server commit");
  auto two = With("gpu_uuid", "GPU-2");
  two["driver_version"] = "590.2";
  EXPECT_EQ(ChangedFacts(Text(kFacts), Text(two)), "gpu_uuid, driver_version");
  auto less = kFacts;
  less.erase("driver_version");
  EXPECT_EQ(ChangedFacts(Text(kFacts), Text(less)), "driver_version");
}

TEST(JobEnvironmentTest, ALockedClockIsComparedAndTheReasonForNoneIsNot) {
  const auto with = [](const char* text) { return Text(With("gpu_clock_lock", text)); };
  EXPECT_EQ(ChangedFacts(with("locked to 1200 MHz while the job ran"), with("not locked: not asked for")),
            "gpu_clock_lock");
  EXPECT_EQ(ChangedFacts(with("locked to 1200 MHz while the job ran"), with("locked to 1300 MHz while the job ran")),
            "gpu_clock_lock");
  EXPECT_EQ(ChangedFacts(with("not locked: not asked for"), with("not locked: 1200 MHz were asked for, but")), "");
}

TEST(JobEnvironmentTest, WhatTellsNothingIsNotCompared) {
  EXPECT_EQ(ChangedFacts("", Text(kFacts)), "");
  EXPECT_EQ(ChangedFacts(Text(kFacts), ""), "");
  EXPECT_EQ(ChangedFacts("[1", Text(kFacts)), "");
}

TEST(JobEnvironmentTest, FactsAreReadOnlyWhereTheyAreTexts) {
  const Json surroundings = Json::parse(R"({"environment": {"a": "x", "b": 1}, "build": []})");
  EXPECT_EQ(Fact(surroundings, "environment", "a"), "x");
  EXPECT_EQ(Fact(surroundings, "environment", "b"), "");
  EXPECT_EQ(Fact(surroundings, "environment", "c"), "");
  EXPECT_EQ(Fact(surroundings, "build", "a"), "");
  EXPECT_EQ(Fact(Json(nullptr), "environment", "a"), "");
}

}  // namespace
}  // namespace keval::server
