// Calls a fuzz target with its seeds and with inputs made from them. Options are written as libFuzzer's:
//
//   fuzz_TARGET [-runs=N] [-max_total_time=SECONDS] [-seed=S] FILE-OR-FOLDER...
//
// Every file as it is, then N mutations of them (0 by default), or as many as the time allows. A seed's mutations are
// always the same, in the same order. An input that ends the program is left as crash-TARGET in the current folder.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/file.h"
#include "tests/fuzz/fuzz_target.h"

// The sanitizers' runtime, where there is one: what it calls before it ends the program.
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace {

using keval::fuzz::Require;

constexpr std::size_t kMaxBytes = std::size_t{64} << 10;

// The input that the target has in hand, for the handlers below.
const std::string* current_input = nullptr;
const std::string* crash_path = nullptr;

// System calls alone: the heap may be what broke.
void KeepInput() {
  if (current_input == nullptr) return;
  const int file = open(crash_path->c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  static_cast<void>(!write(file, current_input->data(), current_input->size()));
  close(file);
  current_input = nullptr;
}

void Call(const std::string& input) {
  current_input = &input;
  // A copy of its exact size, so that a read past the end is seen.
  const std::vector<std::uint8_t> bytes(input.begin(), input.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  current_input = nullptr;
}

class Mutator {
 public:
  Mutator(std::vector<std::string> seeds, std::uint64_t seed) : seeds_(std::move(seeds)), random_(seed) {}

  std::string Next() {
    std::string input = Pick(seeds_);
    for (std::size_t left = 1 + Below(4); left > 0; --left) Mutate(&input);
    input.resize(std::min(input.size(), kMaxBytes));
    return input;
  }

 private:
  // In [0, bound); 0 where that is empty.
  std::size_t Below(std::size_t bound) { return bound == 0 ? 0 : random_() % bound; }

  template <typename Values>
  typename Values::const_reference Pick(const Values& values) {
    return values[Below(std::size(values))];
  }

  // A stretch of another seed.
  std::string Piece() {
    const std::string& from = Pick(seeds_);
    const std::size_t begin = Below(from.size());
    return from.substr(begin, 1 + Below(32));
  }

  void ReplaceNumber(std::string* input) {
    static constexpr std::array<const char*, 14> kNumbers = {
        "0",  "-1", "1e999",      "nan",        "2147483648", "4294967296",          "9223372036854775807",
        "-0", ".5", "1000000000", "0x10000000", "1e-400",     "9223372036854775808", "18446744073709551616"};
    const std::size_t begin = input->find_first_of("0123456789", Below(input->size()));
    if (begin == std::string::npos) return;
    const std::size_t end = std::min(input->find_first_not_of("0123456789", begin), input->size());
    input->replace(begin, end - begin, Pick(kNumbers));
  }

  void Mutate(std::string* input) {
    static constexpr std::array<unsigned char, 12> kBytes = {0x00, 0x01, 0x7f, 0x80, 0xff, '"',
                                                             '{',  '[',  ',',  ':',  '\n', '\''};
    const std::size_t at = Below(input->size());
    const std::size_t length = std::min(1 + Below(Below(8) == 0 ? 1024 : 8), input->size() - at);
    switch (Below(8)) {
      case 0:
        if (!input->empty()) (*input)[at] = static_cast<char>((*input)[at] ^ (1 << Below(8)));
        return;
      case 1:
        if (!input->empty()) (*input)[at] = static_cast<char>(Pick(kBytes));
        return;
      case 2:
        input->erase(at, length);
        return;
      case 3:
        input->insert(at, input->substr(at, length));
        return;
      case 4:
        input->insert(at, Piece());
        return;
      case 5:
        input->resize(at);
        return;
      case 6:
        input->insert(at, 1 + Below(4), static_cast<char>(Pick(kBytes)));
        return;
      default:
        ReplaceNumber(input);
        return;
    }
  }

  const std::vector<std::string> seeds_;
  std::mt19937_64 random_;
};

std::vector<std::string> ReadSeeds(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    if (!std::filesystem::is_directory(path)) {
      files.push_back(path);
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(path)) files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());  // A folder has no order of its own.
  std::vector<std::string> seeds;
  for (const std::string& path : files) {
    auto bytes = keval::ReadWholeFile(path, std::int64_t{16} << 20);
    Require(bytes.ok(), bytes.status().ToString());
    seeds.push_back(*std::move(bytes));
  }
  return seeds;
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t runs = 0;
  std::int64_t seconds = 0;
  std::uint64_t seed = 1;
  std::vector<std::string> paths;
  for (const absl::string_view argument : std::vector<absl::string_view>(argv + 1, argv + argc)) {
    absl::string_view value = argument;
    if (absl::ConsumePrefix(&value, "-runs=")) {
      Require(absl::SimpleAtoi(value, &runs), "-runs is a whole number");
    } else if (absl::ConsumePrefix(&value, "-max_total_time=")) {
      Require(absl::SimpleAtoi(value, &seconds), "-max_total_time is a whole number");
    } else if (absl::ConsumePrefix(&value, "-seed=")) {
      Require(absl::SimpleAtoi(value, &seed), "-seed is a whole number");
    } else {
      paths.emplace_back(argument);
    }
  }
  const std::vector<std::string> seeds = ReadSeeds(paths);
  Require(!seeds.empty(), "there is a seed");

  const std::string crash = absl::StrCat("crash-", std::filesystem::path(argv[0]).filename().string());
  crash_path = &crash;
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(KeepInput);
  static_cast<void>(std::signal(SIGABRT, [](int) { KeepInput(); }));

  for (const std::string& input : seeds) Call(input);
  Mutator mutator(seeds, seed);
  for (std::uint64_t i = 0; i < runs; ++i) Call(mutator.Next());
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (std::chrono::steady_clock::now() < end) {
    Call(mutator.Next());
    ++runs;
  }
  const std::string done = absl::StrCat("Done ", seeds.size(), " seeds and ", runs, " mutations\n");
  static_cast<void>(!write(STDERR_FILENO, done.data(), done.size()));
  return 0;
}
