#include "tests/support/operator_testing.h"

namespace keval::test_support {

const char* TestDeviceName() { return "cpu"; }

}  // namespace keval::test_support
