// keval-worker with planted variants: the same program, for tests of what kevald does about faults.
#include "server/worker/worker_main.h"
#include "tests/support/planted_harness.h"
#include "tests/support/planted_variants.h"

int main(int argc, char** argv) {
  const auto planted = keval::testing::PlantVariants();
  return keval::worker::WorkerMain(argc, argv, keval::testing::HarmfulHooks());
}
