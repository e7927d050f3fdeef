// What a job's state means.
#ifndef KEVAL_PROTO_JOB_STATE_H_
#define KEVAL_PROTO_JOB_STATE_H_

#include "keval/v1/benchmark.pb.h"

namespace keval {

// `state`: a BenchmarkJob::State, or the number of one as the store's column holds it.
inline bool HasEnded(int state) { return state == v1::BenchmarkJob::DONE || state == v1::BenchmarkJob::CANCELLED; }

}  // namespace keval

#endif  // KEVAL_PROTO_JOB_STATE_H_
