// kevald that takes jobs with planted variants: the same program. Its workers are keval-worker-planted, by
// --worker_program.
#include "server/kevald_main.h"
#include "tests/support/planted_variants.h"

int main(int argc, char** argv) {
  const auto planted = keval::testing::PlantVariants();
  return keval::server::KevaldMain({argv + 1, argv + argc});
}
