// What tests of worker processes share: a small job's arms and series, and what is looked at when a call has returned.
#ifndef KEVAL_TESTS_INTEGRATION_WORKER_ROUNDS_H_
#define KEVAL_TESTS_INTEGRATION_WORKER_ROUNDS_H_

#include <gtest/gtest.h>
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/worker_round_collector.h"

namespace keval::testing {

inline absl::Status Carry() { return absl::OkStatus(); }

server::WorkerRoundCollector CollectorOf(const char* program);
server::WorkerRoundCollector Real();            // Of keval-worker.
server::WorkerRoundCollector PlantedWorkers();  // Of keval-worker-planted.

// On a CPU, base portable_matmul_add.
server::JobArms Arms(const std::string& candidate = "portable_addmm");

// 64 x 32 x 300, four chunks.
server::WorkShape Shape();

// A primary, a guard in bfloat16, a control.
std::vector<server::SeriesRun> Series(int quads = 3);

// A call as planted_logs writes it down, and the calls of such a file.
struct LoggedCall {
  std::int64_t process = 0;
  std::int64_t num_tokens = 0;
  std::int64_t siblings_bytes = 0;  // Resident in the other workers.
  std::uint64_t weight = 0;         // A hash of its beginning.
};
std::vector<LoggedCall> ReadLoggedCalls(const std::string& path);

// Process ids of a process's children, zombies included.
std::vector<pid_t> ChildrenOf(pid_t parent);

void ExpectNoChildren();

template <typename T>
const T& Value(const absl::StatusOr<server::Collected<T>>& result) {
  EXPECT_TRUE(result.ok()) << result.status();
  if (const auto* const failure = std::get_if<server::WorkFailure>(&*result)) {
    ADD_FAILURE() << failure->cause << " " << failure->reason << ": " << failure->detail;
    static const auto* const none = new T();
    return *none;
  }
  return std::get<T>(*result);
}

template <typename T>
server::WorkFailure FailureOf(const absl::StatusOr<server::Collected<T>>& result) {
  EXPECT_TRUE(result.ok()) << result.status();
  const auto* const failure = result.ok() ? std::get_if<server::WorkFailure>(&*result) : nullptr;
  EXPECT_NE(failure, nullptr);
  return failure == nullptr ? server::WorkFailure() : *failure;
}

}  // namespace keval::testing

#endif  // KEVAL_TESTS_INTEGRATION_WORKER_ROUNDS_H_
