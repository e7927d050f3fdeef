#include "server/job_loss.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "core/verdict/samples.h"

namespace keval::server {

std::string LossReason(const WorkFailure& failure) {
  const std::string cause = absl::AsciiStrToUpper(failure.cause);
  const std::string reason = failure.reason.empty() ? "FAILED" : failure.reason;
  return reason.rfind(absl::StrCat(cause, "_"), 0) == 0 ? reason : absl::StrCat(cause, "_", reason);
}

bool IsArm(absl::string_view cause) { return cause == "base" || cause == "candidate"; }

StoredLoss ToLoss(absl::string_view phase, int round, const WorkFailure& failure) {
  return {.phase = std::string(phase),
          .round = round,
          .cause = failure.cause,
          .reason = failure.reason,
          .detail = failure.detail,
          .samples = failure.partial.empty() ? std::string() : verdict::FormatSamples(failure.partial)};
}

}  // namespace keval::server
