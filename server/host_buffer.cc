#include "server/host_buffer.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace keval::server {
namespace {
constexpr std::int64_t kAlignment = 64;
}  // namespace

void HostBuffer::Free::operator()(std::byte* data) const { std::free(data); }

HostBuffer::HostBuffer(std::byte* data, std::int64_t size, ByteBudget::Reservation reservation)
    : reservation_(std::move(reservation)), data_(data), size_(size) {}

absl::StatusOr<std::shared_ptr<HostBuffer>> HostBuffer::Allocate(std::int64_t bytes,
                                                                 ByteBudget::Reservation reservation) {
  // aligned_alloc wants a multiple of the alignment; an empty tensor still gets an address.
  const std::int64_t rounded = (std::max<std::int64_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  auto* const data = static_cast<std::byte*>(std::aligned_alloc(kAlignment, static_cast<std::size_t>(rounded)));
  if (data == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("host memory: ", bytes, " bytes could not be allocated"));
  }
  return std::shared_ptr<HostBuffer>(absl::WrapUnique(new HostBuffer(data, bytes, std::move(reservation))));
}

}  // namespace keval::server
