#include "core/measure/kernel_trace.h"

#include <cxxabi.h>

#include <cstddef>
#include <cstdlib>
#include <memory>

#ifdef KEVAL_CUDA
#include <cupti.h>

#include <new>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#endif

namespace keval::measure {
namespace {

// Without what stands between matching brackets, innermost included; "operator<", "->" don't occur in kernel names.
std::string WithoutTemplateArguments(absl::string_view name) {
  std::string kept;
  int depth = 0;
  for (const char c : name) {
    if (c == '<') {
      ++depth;
    } else if (c == '>' && depth > 0) {
      --depth;
    } else if (depth == 0) {
      kept.push_back(c);
    }
  }
  return kept;
}

#ifdef KEVAL_CUDA

// CUPTI hands finished buffers to plain functions on threads of its own: the records' home.
class TraceStore {
 public:
  static TraceStore& Get() {
    static auto* const store = new TraceStore();  // Never destroyed: CUPTI may call until the process ends.
    return *store;
  }
  void Clear() {
    MutexLock lock(&mutex_);
    sums_.clear();
  }
  void Add(const CUpti_ActivityKernel9& kernel) {
    MutexLock lock(&mutex_);
    KernelSum& sum = sums_[KernelName(kernel.name == nullptr ? "unnamed" : kernel.name)];
    ++sum.count;
    if (kernel.end > kernel.start) {
      sum.ns += static_cast<std::int64_t>(kernel.end - kernel.start);  // 0 where CUPTI could not take them.
    }
  }
  KernelsByName Take() {
    MutexLock lock(&mutex_);
    return std::move(sums_);
  }

 private:
  Mutex mutex_;
  KernelsByName sums_ ABSL_GUARDED_BY(mutex_);
};

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;
constexpr std::align_val_t kBufferAlignment{8};  // What CUPTI asks for (ACTIVITY_RECORD_ALIGNMENT).

void CUPTIAPI BufferRequested(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records) {
  *buffer = static_cast<std::uint8_t*>(::operator new(kBufferBytes, kBufferAlignment));
  *size = kBufferBytes;
  *max_records = 0;  // As many as fit.
}

void CUPTIAPI BufferCompleted(CUcontext /*context*/, std::uint32_t /*stream*/, std::uint8_t* buffer,
                              std::size_t /*size*/, std::size_t valid_size) {
  CUpti_Activity* record = nullptr;
  while (valid_size > 0 && cuptiActivityGetNextRecord(buffer, valid_size, &record) == CUPTI_SUCCESS) {
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL || record->kind == CUPTI_ACTIVITY_KIND_KERNEL) {
      TraceStore::Get().Add(*reinterpret_cast<const CUpti_ActivityKernel9*>(record));
    }
  }
  ::operator delete(buffer, kBufferAlignment);
}

absl::Status CuptiStatus(CUptiResult result, absl::string_view what) {
  if (result == CUPTI_SUCCESS) {
    return absl::OkStatus();
  }
  const char* text = nullptr;
  cuptiGetResultString(result, &text);
  return absl::UnavailableError(absl::StrCat("CUPTI: ", what, ": ", text == nullptr ? "unknown error" : text));
}

#endif  // KEVAL_CUDA

}  // namespace

std::string KernelName(absl::string_view mangled) {
  std::string name(mangled);
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> demangled(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), &std::free);
  if (demangled == nullptr) {
    return name;
  }
  // "(anonymous namespace)" is the one pair of parentheses that belongs to a name.
  constexpr absl::string_view kAnonymous = "(anonymous namespace)::";
  std::string text(demangled.get());
  for (std::size_t at = text.find(kAnonymous.data()); at != std::string::npos; at = text.find(kAnonymous.data(), at)) {
    text.erase(at, kAnonymous.size());
  }
  text = WithoutTemplateArguments(text);
  text = text.substr(0, text.find('('));
  return text.substr(text.rfind(' ') == std::string::npos ? 0 : text.rfind(' ') + 1);
}

absl::StatusOr<KernelsByName> TraceKernels(const DeviceSession& session, const std::function<absl::Status()>& call) {
#ifdef KEVAL_CUDA
  if (session.device().cuda) {
    if (absl::Status status = session.Synchronize(); !status.ok()) {
      return status;
    }
    TraceStore::Get().Clear();
    absl::Status status = CuptiStatus(cuptiActivityRegisterCallbacks(&BufferRequested, &BufferCompleted), "callbacks");
    if (status.ok()) {
      status = CuptiStatus(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), "kernel records");
    }
    if (!status.ok()) {
      return status;
    }
    status = call();
    if (status.ok()) {
      status = session.Synchronize();
    }
    const CUptiResult flushed = cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    const CUptiResult disabled = cuptiActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    if (status.ok()) {
      status = CuptiStatus(flushed, "flush");
    }
    if (status.ok()) {
      status = CuptiStatus(disabled, "disable");
    }
    if (!status.ok()) {
      return status;
    }
    return TraceStore::Get().Take();
  }
#endif
  static_cast<void>(session);
  if (absl::Status status = call(); !status.ok()) {
    return status;
  }
  return KernelsByName();
}

}  // namespace keval::measure
