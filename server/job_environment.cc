#include "server/job_environment.h"

#include "absl/strings/str_cat.h"

namespace keval::server {
namespace {

constexpr const char* kEnvironmentFacts[] = {"device",
                                             "cpu_model",
                                             "cpu_governor",
                                             "operating_system",
                                             "c_library",
                                             "allocator",
                                             "compiler",
                                             "build_type",
                                             "build_flags",
                                             "built_with_cuda",
                                             "libtorch_version",
                                             "libtorch_cpu_capability",
                                             "worker_threads",
                                             "tf32",
                                             "reduced_precision_float16",
                                             "reduced_precision_bfloat16",
                                             "deterministic_algorithms",
                                             "cublas_workspace",
                                             "gpu_uuid",
                                             "gpu_model",
                                             "driver_version",
                                             "cuda_driver",
                                             "cuda_runtime",
                                             "gpu_power_limit",
                                             "gpu_clock_lock",
                                             "worker_sha256"};
constexpr const char* kBuildFacts[] = {"version", "commit", "build_type", "compiler", "torch_version"};

}  // namespace

Json EnvironmentJson(const std::map<std::string, std::string>& facts, const v1::BuildInfo& build) {
  return {{"environment", facts},
          {"build",
           {{"version", build.version()},
            {"commit", build.commit()},
            {"build_type", build.build_type()},
            {"compiler", build.compiler()},
            {"torch_version", build.torch_version()},
            {"cuda", build.cuda()}}}};
}

std::string Fact(const Json& surroundings, const char* part, const char* key) {
  if (!surroundings.is_object() || !surroundings.contains(part)) return "";
  const Json& facts = surroundings.at(part);
  if (!facts.is_object() || !facts.contains(key) || !facts.at(key).is_string()) return "";
  return facts.at(key).get<std::string>();
}

std::string ChangedFacts(absl::string_view before, absl::string_view after) {
  const Json old_facts = Json::parse(before.begin(), before.end(), nullptr, false);
  const Json new_facts = Json::parse(after.begin(), after.end(), nullptr, false);
  if (!old_facts.is_object() || !new_facts.is_object()) return "";
  std::string changed;
  // Why a clock is not locked may change while the clock doesn't.
  const auto fact_of = [](const Json& surroundings, const char* part, const std::string& key) {
    const std::string fact = Fact(surroundings, part, key.c_str());
    return key == "gpu_clock_lock" ? fact.substr(0, fact.find(':')) : fact;
  };
  const auto compare = [&](const char* part, const char* prefix, const char* key) {
    if (fact_of(old_facts, part, key) == fact_of(new_facts, part, key)) return;
    absl::StrAppend(&changed, changed.empty() ? "" : ", ", prefix, key);
  };
  for (const char* key : kEnvironmentFacts) compare("environment", "", key);
  for (const char* key : kBuildFacts) compare("build", "server ", key);
  return changed;
}

}  // namespace keval::server
