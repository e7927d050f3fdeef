#include "server/worker/running_page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace keval::worker {
namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr int kLeastFd = 16;  // Clear of those that a worker finds its inheritance on.

absl::Status SystemError(absl::string_view what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

// nullptr on failure.
void* Map(int fd) {
  void* const page = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return page == MAP_FAILED ? nullptr : page;
}

}  // namespace

absl::StatusOr<RunningPage> RunningPage::Create() {
  const int made = memfd_create("keval-running", MFD_CLOEXEC);
  if (made < 0) {
    return SystemError("no shared page");
  }
  const int fd = fcntl(made, F_DUPFD_CLOEXEC, kLeastFd);
  close(made);
  if (fd < 0) {
    return SystemError("no descriptor for the shared page");
  }
  void* const page = ftruncate(fd, kPageBytes) == 0 ? Map(fd) : nullptr;
  if (page == nullptr) {
    const absl::Status status = SystemError("no memory for the shared page");
    close(fd);
    return status;
  }
  return RunningPage(fd, new (page) RunningMark(Running::kHarness));
}

absl::StatusOr<RunningPage> RunningPage::Attach(int fd) {
  void* const page = Map(fd);
  if (page == nullptr) {
    return SystemError("the shared page can't be mapped");
  }
  return RunningPage(-1, static_cast<RunningMark*>(page));
}

RunningPage::~RunningPage() {
  if (mark_ != nullptr) {
    munmap(mark_, kPageBytes);
  }
  if (fd_ >= 0) {
    close(fd_);
  }
}

}  // namespace keval::worker
