// Where the running program lies.
#ifndef KEVAL_BENCH_THIS_PROGRAM_H_
#define KEVAL_BENCH_THIS_PROGRAM_H_

#include <string>

namespace keval::bench {

// The path of the program `name` in this one's folder.
std::string BesideThisProgram(const std::string& name);

}  // namespace keval::bench

#endif  // KEVAL_BENCH_THIS_PROGRAM_H_
