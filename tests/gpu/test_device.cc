#include "tests/support/operator_testing.h"

namespace keval::test_support {

const char* TestDeviceName() { return "cuda:0"; }

}  // namespace keval::test_support
