// A program with one fault of each kind, to show that a sanitizer build finds it. Usage: planted_fault KIND.
#include <climits>
#include <string>
#include <thread>

namespace {

// volatile: the optimiser must neither see nor drop the fault.
volatile int largest = INT_MAX;
int raced = 0;

int ReadAfterFree() {
  auto* const value = new volatile int(1);
  delete value;
  return *value;  // NOLINT(clang-analyzer-cplusplus.NewDelete): the fault.
}

int OverflowSigned() { return largest + 1; }

int Race() {
  std::thread other([] {
    for (int i = 0; i < 1000; ++i) ++raced;
  });
  for (int i = 0; i < 1000; ++i) ++raced;
  other.join();
  return raced;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string kind = argc == 2 ? argv[1] : "";
  int result = 0;
  if (kind == "heap-use-after-free") {
    result = ReadAfterFree();
  } else if (kind == "signed-overflow") {
    result = OverflowSigned();
  } else if (kind == "data-race") {
    result = Race();
  } else {
    return 2;
  }
  // The result is used, whatever it is; a found fault has ended the program, or sets its exit code at the end.
  return result == 42 ? 1 : 0;
}
