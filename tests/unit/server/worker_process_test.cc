// Programs of the system stand in for workers: what each ends as, and that none is left.
#include "server/worker/worker_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <variant>

#include "absl/status/status.h"
#include "tests/support/temp_dir.h"

namespace keval::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Blame = WorkerFault::Blame;
using std::chrono::milliseconds;

void ExpectNoChildren() {
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

// Zombies that nobody reaps don't.
bool IsRunning(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string stat(std::istreambuf_iterator<char>(file), {});
  return !stat.empty() && stat.substr(stat.rfind(')') + 2, 1) != "Z";
}

WorkerFault FaultOf(const std::string& program, milliseconds timeout = milliseconds(10000)) {
  auto worker = WorkerProcess::Spawn(program, 1);
  EXPECT_TRUE(worker.ok()) << worker.status();
  auto answer = (*worker)->Receive(timeout, nullptr);
  EXPECT_TRUE(answer.ok()) << answer.status();
  return std::get<WorkerFault>(*answer);
}

TEST(WorkerProcessTest, ExitsAreCrashesWithTheirCode) {
  const WorkerFault fault = FaultOf("/bin/false");
  EXPECT_EQ(fault.reason, "CRASHED");
  EXPECT_EQ(fault.blame, Blame::kHarness);  // No arm ran, as far as it said.
  EXPECT_THAT(fault.detail, HasSubstr("exited with code 1"));
  EXPECT_THAT(FaultOf("/bin/true").detail, HasSubstr("exited with code 0"));
  ExpectNoChildren();
}

TEST(WorkerProcessTest, LastWordsAreKeptAndPrintable) {
  EXPECT_THAT(FaultOf("/bin/cat").detail, HasSubstr("it last wrote: "));  // Complains of its argument.
}

TEST(WorkerProcessTest, VariablesThatChangeTimesOrResultsAreNotInherited) {
  const testing::TempDir folder;
  const std::string program = folder.path() + "/print-environment";
  std::ofstream(program) << "#!/bin/sh\nenv >" << folder.path() << "/environment\n";
  ASSERT_EQ(chmod(program.c_str(), 0700), 0);
  const char* const kNotForWorkers[] = {"CUDA_LAUNCH_BLOCKING",    "CUBLAS_WORKSPACE_CONFIG",
                                        "CUBLASLT_LOG_LEVEL",      "ATEN_CPU_CAPABILITY",
                                        "DNNL_MAX_CPU_ISA",        "ONEDNN_MAX_CPU_ISA",
                                        "PYTORCH_CUDA_ALLOC_CONF", "MALLOC_ARENA_MAX",
                                        "OMP_PROC_BIND",           "MKL_CBWR"};
  for (const char* const name : kNotForWorkers) setenv(name, "1", 1);
  setenv("CUDA_VISIBLE_DEVICES", "0", 1);  // Which device is which must stay.
  FaultOf(program);
  for (const char* const name : kNotForWorkers) unsetenv(name);
  unsetenv("CUDA_VISIBLE_DEVICES");
  std::ifstream file(folder.path() + "/environment");
  const std::string environment(std::istreambuf_iterator<char>(file), {});
  for (const char* const name : kNotForWorkers)
    EXPECT_THAT(environment, Not(HasSubstr(std::string(name) + "="))) << name;
  EXPECT_THAT(environment, HasSubstr("CUDA_VISIBLE_DEVICES=0"));
  EXPECT_THAT(environment, HasSubstr("OMP_NUM_THREADS=1"));
  EXPECT_THAT(environment, HasSubstr("MKL_NUM_THREADS=1"));
}

TEST(WorkerProcessTest, HelpersThatAWorkerLeavesEndWithIt) {
  const testing::TempDir folder;
  const std::string program = folder.path() + "/leave-a-helper";
  std::ofstream(program) << "#!/bin/sh\nsleep 600 >/dev/null 2>&1 3>&- 4>&- &\necho $! >" << folder.path()
                         << "/helper\nexit 3\n";
  ASSERT_EQ(chmod(program.c_str(), 0700), 0);
  EXPECT_THAT(FaultOf(program).detail, HasSubstr("exited with code 3"));
  pid_t helper = 0;
  std::ifstream(folder.path() + "/helper") >> helper;
  ASSERT_GT(helper, 0);
  // It is init's child by now, and gone or about to be.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (IsRunning(helper) && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(milliseconds(5));
  }
  EXPECT_FALSE(IsRunning(helper));
  ExpectNoChildren();
}

// Within the timeout: the socket tells nothing, since the helper holds it open.
TEST(WorkerProcessTest, AHelperThatHoldsTheSocketDoesNotHideTheEnd) {
  const testing::TempDir folder;
  const std::string program = folder.path() + "/leave-a-helper";
  std::ofstream(program) << "#!/bin/sh\nsleep 600 &\nexit 3\n";
  ASSERT_EQ(chmod(program.c_str(), 0700), 0);
  const WorkerFault fault = FaultOf(program, std::chrono::minutes(5));
  EXPECT_EQ(fault.reason, "CRASHED");
  EXPECT_THAT(fault.detail, HasSubstr("exited with code 3"));
  ExpectNoChildren();
}

// What was written before the end is an answer all the same.
TEST(WorkerProcessTest, ADeadWorkersLastReplyIsRead) {
  const testing::TempDir folder;
  const std::string program = folder.path() + "/answer-and-leave";
  std::ofstream(program) << "#!/bin/sh\nsleep 600 &\nprintf '\\000\\000\\000\\000' >&3\nexit 3\n";  // An empty reply.
  ASSERT_EQ(chmod(program.c_str(), 0700), 0);
  auto worker = WorkerProcess::Spawn(program, 1);
  ASSERT_TRUE(worker.ok()) << worker.status();
  siginfo_t ended{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>((*worker)->pid()), &ended, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(std::holds_alternative<Reply>(*(*worker)->Receive(milliseconds(10000), nullptr)));
  EXPECT_EQ(std::get<WorkerFault>(*(*worker)->Receive(milliseconds(10000), nullptr)).reason, "CRASHED");
}

TEST(WorkerProcessTest, SilenceIsAHang) {
  const auto begin = std::chrono::steady_clock::now();
  const WorkerFault fault = FaultOf("/bin/sleep", milliseconds(200));
  EXPECT_EQ(fault.reason, "HUNG");
  EXPECT_EQ(fault.blame, Blame::kHarness);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  ExpectNoChildren();
}

TEST(WorkerProcessTest, SignalsAreNamedAndBlamedRightly) {
  const auto end_by = [](int signal_number) {
    auto worker = WorkerProcess::Spawn("/bin/sleep", 1);
    EXPECT_TRUE(worker.ok());
    kill((*worker)->pid(), signal_number);
    return std::get<WorkerFault>(*(*worker)->Receive(milliseconds(10000), nullptr));
  };
  const WorkerFault crashed = end_by(SIGSEGV);
  EXPECT_EQ(crashed.reason, "CRASHED");
  EXPECT_EQ(crashed.blame, Blame::kHarness);
  EXPECT_THAT(crashed.detail, HasSubstr("SIGSEGV"));
  const WorkerFault killed = end_by(SIGTERM);
  EXPECT_EQ(killed.reason, "KILLED");
  EXPECT_EQ(killed.blame, Blame::kInfrastructure);
  ExpectNoChildren();
}

class KernelKillTest : public ::testing::TestWithParam<bool> {};

// The kernel's counter is a planted file: killing for want of memory would take the machine's.
TEST_P(KernelKillTest, IsToldFromAKillOfSomebodyElse) {
  const testing::TempDir folder;
  const std::string counters = folder.path() + "/vmstat";
  std::ofstream(counters) << "pgfault 12\noom_kill 3\n";
  auto worker = WorkerProcess::Spawn("/bin/sleep", 1, counters);
  ASSERT_TRUE(worker.ok()) << worker.status();
  if (GetParam()) {
    std::ofstream(counters) << "pgfault 13\noom_kill 4\n";
  }
  kill((*worker)->pid(), SIGKILL);
  const WorkerFault fault = std::get<WorkerFault>(*(*worker)->Receive(milliseconds(10000), nullptr));
  EXPECT_EQ(fault.blame, Blame::kInfrastructure);
  EXPECT_EQ(fault.reason, GetParam() ? "KILLED_BY_KERNEL" : "KILLED");
  ExpectNoChildren();
}

TEST(WorkerProcessTest, CountersThatToldNothingBeforeTellNothing) {
  const testing::TempDir folder;
  const std::string counters = folder.path() + "/memory.events";
  EXPECT_EQ(KernelOomKills(counters), std::nullopt);
  auto worker = WorkerProcess::Spawn("/bin/sleep", 1, counters);
  ASSERT_TRUE(worker.ok()) << worker.status();
  std::ofstream(counters) << "low 0\noom_kill 4\n";  // Of long before.
  EXPECT_EQ(KernelOomKills(counters), 4);
  kill((*worker)->pid(), SIGKILL);
  EXPECT_EQ(std::get<WorkerFault>(*(*worker)->Receive(milliseconds(10000), nullptr)).reason, "KILLED");
  std::ofstream(counters) << "oom_kill x\n";
  EXPECT_EQ(KernelOomKills(counters), std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(planted_kill, KernelKillTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "by_the_kernel" : "by_somebody"; });

// A contract check's worker may hold a context on the device in the middle of a job's block.
TEST(WorkerProcessTest, AllThatLiveAreOurOwnUntilTheyAreReaped) {
  EXPECT_THAT(OwnProcessIds(), ::testing::ElementsAre(getpid()));
  auto first = WorkerProcess::Spawn("/bin/sleep", 1);
  auto second = WorkerProcess::Spawn("/bin/sleep", 1);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_THAT(OwnProcessIds(), ::testing::UnorderedElementsAre(getpid(), (*first)->pid(), (*second)->pid()));
  first->reset();
  EXPECT_THAT(OwnProcessIds(), ::testing::UnorderedElementsAre(getpid(), (*second)->pid()));
  kill((*second)->pid(), SIGKILL);
  EXPECT_TRUE((*second)->Receive(milliseconds(10000), nullptr).ok());
  EXPECT_THAT(OwnProcessIds(), ::testing::ElementsAre(getpid()));
}

TEST(WorkerProcessTest, CheckEndsTheWait) {
  auto worker = WorkerProcess::Spawn("/bin/sleep", 1);
  ASSERT_TRUE(worker.ok());
  int asked = 0;
  const auto answer = (*worker)->Receive(
      milliseconds(60000), [&asked] { return ++asked < 3 ? absl::OkStatus() : absl::CancelledError("enough"); });
  EXPECT_EQ(answer.status(), absl::CancelledError("enough"));
  worker->reset();
  ExpectNoChildren();
}

TEST(WorkerProcessTest, AProgramThatIsNotThereIsUnavailable) {
  EXPECT_EQ(WorkerProcess::Spawn("/nonexistent/keval-worker", 1).status().code(), absl::StatusCode::kUnavailable);
  ExpectNoChildren();
}

TEST(WorkerProcessTest, ADeadWorkerShowsInReceive) {
  auto worker = WorkerProcess::Spawn("/bin/true", 1);
  ASSERT_TRUE(worker.ok());
  siginfo_t ended{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>((*worker)->pid()), &ended, WEXITED | WNOWAIT), 0);
  (*worker)->Send(Request());  // No SIGPIPE.
  EXPECT_EQ(std::get<WorkerFault>(*(*worker)->Receive(milliseconds(10000), nullptr)).reason, "CRASHED");
}

}  // namespace
}  // namespace keval::worker
