// Harm to a worker's own code, by the names of the variants that it is asked to prepare (planted_variants.h).
#ifndef KEVAL_TESTS_SUPPORT_PLANTED_HARNESS_H_
#define KEVAL_TESTS_SUPPORT_PLANTED_HARNESS_H_

#include "server/worker/worker_main.h"

namespace keval::testing {

// For one worker process.
worker::WorkerHooks HarmfulHooks();

}  // namespace keval::testing

#endif  // KEVAL_TESTS_SUPPORT_PLANTED_HARNESS_H_
