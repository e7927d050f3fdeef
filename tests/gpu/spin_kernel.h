// A kernel of known duration, and one that does wrong.
#ifndef KEVAL_TESTS_GPU_SPIN_KERNEL_H_
#define KEVAL_TESTS_GPU_SPIN_KERNEL_H_

#include <cstdint>

namespace keval::testing {

// Queues a kernel on `stream` (a cudaStream_t) that ends once the device's clock has moved on by `ns`.
void Spin(void* stream, std::uint64_t ns);

// Queues a kernel that writes where nothing is: an illegal access, after which the process's context is lost.
void WriteOutside(void* stream);

}  // namespace keval::testing

#endif  // KEVAL_TESTS_GPU_SPIN_KERNEL_H_
