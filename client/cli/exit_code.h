// Exit codes of every command (0 done; 1, 3, 4, 5 come from a verdict, see core/verdict/require.h).
#ifndef KEVAL_CLIENT_CLI_EXIT_CODE_H_
#define KEVAL_CLIENT_CLI_EXIT_CODE_H_

#include "absl/status/status.h"

namespace keval::cli {

inline constexpr int kDone = 0;
inline constexpr int kContractFailed = 4;
inline constexpr int kUsage = 2;           // Usage, file, spec, INVALID_ARGUMENT, NOT_FOUND, FAILED_PRECONDITION.
inline constexpr int kInfrastructure = 6;  // UNAVAILABLE, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, authentication, …
inline constexpr int kCancelled = 7;

inline int ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kDone;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kAlreadyExists:
      return kUsage;
    case absl::StatusCode::kCancelled:
      return kCancelled;
    default:
      return kInfrastructure;
  }
}

}  // namespace keval::cli

#endif  // KEVAL_CLIENT_CLI_EXIT_CODE_H_
