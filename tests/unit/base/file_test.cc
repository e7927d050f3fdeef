#include "base/file.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace keval {
namespace {

TEST(FileTest, TellsWhatLiesBesideTheRunningProgram) {
  const std::string self = ProgramBesideThisOne("base_test");
  EXPECT_EQ(self.front(), '/');
  EXPECT_EQ(access(self.c_str(), X_OK), 0) << self;
  EXPECT_EQ(ProgramBesideThisOne("another"), self.substr(0, self.rfind('/') + 1) + "another");
}

}  // namespace
}  // namespace keval
