// What the tests of core/verdict share.
#ifndef KEVAL_TESTS_UNIT_VERDICT_VERDICT_TESTING_H_
#define KEVAL_TESTS_UNIT_VERDICT_VERDICT_TESTING_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "core/verdict/samples.h"

namespace keval::verdict {

inline std::string ReadCase(const std::string& path) {
  std::ifstream file(std::string(KEVAL_TEST_CASES_DIR) + "/" + path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// One series whose rounds have given values: in every quad A takes `base_ns` and B what makes the quad's value exactly
// (to a nanosecond) the round's.
struct MadeSeries {
  std::string name;
  Role role = Role::kPrimary;
  std::vector<double> values;  // D by round.
  int quads = 3;
  double base_ns = 1e9;
};

inline void AppendQuad(const MadeSeries& made, int round, int quad, double value, std::vector<Sample>* samples) {
  for (int pos = 0; pos < 4; ++pos) {
    const bool is_a = pos == 0 || pos == 3;
    const double ns = is_a ? made.base_ns : made.base_ns * std::exp(-value);
    samples->push_back({.series = made.name,
                        .role = made.role,
                        .round = round,
                        .quad = quad,
                        .pos = pos,
                        .arm = is_a ? 'A' : 'B',
                        .ns = std::llround(ns)});
  }
}

inline std::vector<Sample> MakeSamples(const std::vector<MadeSeries>& all) {
  std::vector<Sample> samples;
  for (const MadeSeries& made : all) {
    for (std::size_t round = 0; round < made.values.size(); ++round) {
      for (int quad = 0; quad < made.quads; ++quad) {
        AppendQuad(made, static_cast<int>(round), quad, made.values[round], &samples);
      }
    }
  }
  return samples;
}

// `n` values around `mean`, alternately `spread` above and below.
inline std::vector<double> Around(double mean, double spread, int n) {
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i) values.push_back(mean + (i % 2 == 0 ? spread : -spread));
  return values;
}

inline constexpr double kSpread = 0.0005;

// A job of `rounds` rounds: primary and guard with the given gains, and a quiet control.
inline std::vector<MadeSeries> Job(double primary, double guard, int rounds = 6) {
  return {{.name = "s1", .values = Around(primary, kSpread, rounds)},
          {.name = "s2", .role = Role::kGuard, .values = Around(guard, kSpread, rounds)},
          {.name = "ctl", .role = Role::kControl, .values = Around(0, kSpread, rounds)}};
}

// Loses rounds of a series by throttling all but two quads of each; both arms alike.
inline void Lose(const std::string& series, const std::vector<int>& rounds, std::vector<Sample>* samples) {
  for (Sample& sample : *samples) {
    const bool lost = std::find(rounds.begin(), rounds.end(), sample.round) != rounds.end();
    if (lost && sample.series == series && sample.quad == 0) sample.throttled = true;
  }
}

}  // namespace keval::verdict

#endif  // KEVAL_TESTS_UNIT_VERDICT_VERDICT_TESTING_H_
