#include "wire/memory_loan.h"

#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

namespace keval::wire {
namespace {

TEST(MemoryLoanTest, WithoutReferencesItIsBackAtOnce) {
  MemoryLoan loan;
  EXPECT_TRUE(loan.AwaitReturn(std::chrono::milliseconds(0)));
}

TEST(MemoryLoanTest, OneReferenceKeepsItOut) {
  MemoryLoan loan;
  std::shared_ptr<const void> slice = loan.owner();
  EXPECT_FALSE(loan.AwaitReturn(std::chrono::milliseconds(5)));
  slice.reset();
  EXPECT_TRUE(loan.AwaitReturn(std::chrono::milliseconds(0)));
}

TEST(MemoryLoanTest, WaitsForTheLastOfManyOnAnotherThread) {
  MemoryLoan loan;
  std::thread holder([first = loan.owner(), second = loan.owner()]() mutable {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    first.reset();
    second.reset();
  });
  EXPECT_TRUE(loan.AwaitReturn(std::chrono::seconds(20)));
  holder.join();
}

TEST(MemoryLoanTest, ReferencesMayOutliveTheLoan) {
  std::shared_ptr<const void> slice;
  {
    const MemoryLoan loan;
    slice = loan.owner();
  }
  slice.reset();
}

}  // namespace
}  // namespace keval::wire
