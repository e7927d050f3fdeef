// Repeated figures and how they are summed up. Pure functions.
#ifndef KEVAL_BENCH_MEASUREMENTS_H_
#define KEVAL_BENCH_MEASUREMENTS_H_

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace keval::bench {

// Of `values`, which must not be empty; `fraction` in [0, 1], by linear interpolation between neighbours.
double Quantile(std::vector<double> values, double fraction);

// {"median", "low", "high", "count"}: low and high are the quartiles, the spread.
nlohmann::ordered_json Summary(const std::vector<double>& values);

// {"absent": why}: a figure that this run couldn't take.
nlohmann::ordered_json Absent(const std::string& why);

}  // namespace keval::bench

#endif  // KEVAL_BENCH_MEASUREMENTS_H_
