#include "base/large_memory.h"

#include <malloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

namespace keval {
namespace {
constexpr std::size_t kLineBytes = 64;
constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
}  // namespace

void FreeMemory::operator()(std::byte* data) const { std::free(data); }

LargeMemory AllocateLarge(std::size_t bytes) {
  const std::size_t alignment = bytes < kHugePageBytes ? kLineBytes : kHugePageBytes;
  if (bytes > std::numeric_limits<std::size_t>::max() - alignment) return nullptr;
  // aligned_alloc wants a multiple of the alignment; nothing still gets an address.
  const std::size_t rounded = (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  LargeMemory memory(static_cast<std::byte*>(std::aligned_alloc(alignment, rounded)));
  // A wish: without huge pages the memory is as good, only slower to touch first.
  if (memory != nullptr && alignment == kHugePageBytes) madvise(memory.get(), rounded, MADV_HUGEPAGE);
  return memory;
}

bool TuneAllocator() {
  constexpr int kMiB = 1 << 20;
  return mallopt(M_MMAP_THRESHOLD, 32 * kMiB) == 1 && mallopt(M_TRIM_THRESHOLD, 128 * kMiB) == 1 &&
         mallopt(M_TOP_PAD, 64 * kMiB) == 1 && mallopt(M_ARENA_MAX, 1) == 1;
}

}  // namespace keval
