#include "server/worker/cpu_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"

namespace keval::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(CpuSetTest, NeighboursInACircleAreChosen) {
  EXPECT_THAT(ChooseCpus({2, 3, 5, 7}, 1, 0), ElementsAre(2));
  EXPECT_THAT(ChooseCpus({2, 3, 5, 7}, 1, 6), ElementsAre(5));
  EXPECT_THAT(ChooseCpus({2, 3, 5, 7}, 2, 3), ElementsAre(7, 2));
  EXPECT_THAT(ChooseCpus({2, 3, 5, 7}, 3, 18'446'744'073'709'551'615U), ElementsAre(7, 2, 3));
}

TEST(CpuSetTest, WhereAllAreNeededAnyMayBeUsed) {
  EXPECT_THAT(ChooseCpus({2, 3}, 2, 1), IsEmpty());
  EXPECT_THAT(ChooseCpus({2, 3}, 3, 1), IsEmpty());
  EXPECT_THAT(ChooseCpus({2, 3}, 0, 1), IsEmpty());
  EXPECT_THAT(ChooseCpus({}, 1, 1), IsEmpty());
}

TEST(CpuSetTest, APinnedProcessMayUseThoseAlone) {
  const std::vector<int> usable = UsableCpus();
  ASSERT_FALSE(usable.empty());
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  ASSERT_GT(child, 0);
  const absl::Status status = PinProcess(child, {usable.back()});
  EXPECT_TRUE(status.ok()) << status;
  std::ifstream file(absl::StrCat("/proc/", child, "/status"));
  std::string allowed;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("Cpus_allowed_list:", 0) == 0) allowed = line.substr(line.find('\t') + 1);
  }
  EXPECT_EQ(allowed, absl::StrCat(usable.back()));
  kill(child, SIGKILL);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ(PinProcess(child, {usable.back()}).code(), absl::StatusCode::kFailedPrecondition);  // It is gone.
}

}  // namespace
}  // namespace keval::worker
