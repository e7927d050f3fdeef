#include "tests/integration/worker_rounds.h"

#include <dirent.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "base/number.h"

namespace keval::testing {

using server::JobArms;
using server::SeriesRun;
using server::WorkerRoundCollector;
using server::WorkShape;

WorkerRoundCollector CollectorOf(const char* program) {
  WorkerRoundCollector::Options options;
  options.worker_program = program;
  return WorkerRoundCollector(options);
}
WorkerRoundCollector Real() { return CollectorOf(KEVAL_BIN_DIR "/keval-worker"); }
WorkerRoundCollector PlantedWorkers() { return CollectorOf(KEVAL_PLANTED_WORKER); }

JobArms Arms(const std::string& candidate) {
  JobArms arms;
  arms.base_variant = "portable_matmul_add";
  arms.candidate_variant = candidate;
  arms.device = "cpu";
  arms.seed = 9007199254740993;
  arms.hang_timeout_seconds = 60;
  return arms;
}

WorkShape Shape() {
  WorkShape shape;
  shape.num_tokens = 64;
  shape.hidden_size = 32;
  shape.vocab_size = 300;
  shape.bias = true;
  shape.chunk_elems = std::int64_t{16} * 300;  // Four chunks.
  return shape;
}

std::vector<SeriesRun> Series(int quads) {
  const SeriesRun primary = {"64x32x300/float32/bias", verdict::Role::kPrimary, Shape(), quads, 3, 1};
  SeriesRun guard = {"64x32x300/bfloat16/bias", verdict::Role::kGuard, Shape(), quads, 2, 1};
  guard.shape.dtype = DType::kBFloat16;
  const SeriesRun control = {"ctl:64x32x300/float32/bias", verdict::Role::kControl, Shape(), quads, 3, 1};
  return {primary, guard, control};
}

std::vector<LoggedCall> ReadLoggedCalls(const std::string& path) {
  std::vector<LoggedCall> calls;
  std::ifstream file(path);
  for (LoggedCall call; file >> call.process >> call.num_tokens >> call.siblings_bytes >> call.weight;) {
    calls.push_back(call);
  }
  return calls;
}

std::vector<pid_t> ChildrenOf(pid_t parent) {
  std::vector<pid_t> children;
  DIR* const directory = opendir("/proc");
  while (const dirent* entry = readdir(directory)) {
    const auto pid = ParseInt64(entry->d_name);
    if (!pid.has_value()) {
      continue;
    }
    std::ifstream file(absl::StrCat("/proc/", *pid, "/status"));
    for (std::string line; std::getline(file, line);) {
      if (line == absl::StrCat("PPid:\t", parent)) {
        children.push_back(static_cast<pid_t>(*pid));
      }
    }
  }
  closedir(directory);
  return children;
}

void ExpectNoChildren() { EXPECT_THAT(ChildrenOf(getpid()), ::testing::IsEmpty()); }

}  // namespace keval::testing
