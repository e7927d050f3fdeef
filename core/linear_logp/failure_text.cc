#include "core/linear_logp/failure_text.h"

#include <c10/util/Exception.h>

#include <array>
#include <exception>
#include <new>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "base/text.h"
#include "core/linear_logp/variant.h"

namespace keval::linear_logp {
namespace {

// What torch and the CUDA runtime say: a c10::Error has no code to ask (CudaStatus has). In lower case.
constexpr std::array<absl::string_view, 4> kOutOfMemory = {"out of memory", "can't allocate memory",
                                                           "not enough memory", "bad_alloc"};
constexpr std::array<absl::string_view, 6> kDeviceLost = {"uncorrectable ecc",      "gpu is lost",
                                                          "no cuda-capable device", "devices are unavailable",
                                                          "driver shutting down",   "busy or unavailable"};
constexpr std::array<absl::string_view, 6> kPoisoned = {"illegal memory access",  "misaligned address",
                                                        "an illegal instruction", "unspecified launch failure",
                                                        "device-side assert",     "hardware stack error"};

template <std::size_t n>
bool ContainsAny(absl::string_view text, const std::array<absl::string_view, n>& parts) {
  const std::string lower = absl::AsciiStrToLower(text);
  for (const absl::string_view part : parts) {
    if (absl::StrContains(lower, part)) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::string FailureMessage(absl::string_view text) {
  constexpr std::size_t kMaxBytes = 512;
  return PrintableText(text.substr(0, text.find('\n')), kMaxBytes);
}

absl::Status StatusOfFailureText(absl::string_view text) {
  const std::string message = FailureMessage(text);
  if (ContainsAny(text, kPoisoned)) {
    return absl::AbortedError(message);
  }
  if (ContainsAny(text, kDeviceLost)) {
    return absl::UnavailableError(message);
  }
  if (ContainsAny(text, kOutOfMemory)) {
    return absl::ResourceExhaustedError(message);
  }
  return absl::InternalError(message);
}

absl::Status StatusOfFailure(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return absl::ResourceExhaustedError("out of host memory");
  }
  const auto* const torch_error = dynamic_cast<const c10::Error*>(&error);
  const std::string text = torch_error == nullptr ? error.what() : torch_error->what_without_backtrace();
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) {
    return absl::ResourceExhaustedError(FailureMessage(text));
  }
  return StatusOfFailureText(text);
}

absl::Status CatchFailures(const std::function<absl::Status()>& work) {
  try {
    return work();
  } catch (const linear_logp::Stopped& stopped) {
    return stopped.status;
  } catch (const std::exception& error) {
    return StatusOfFailure(error);
  }
}

}  // namespace keval::linear_logp
