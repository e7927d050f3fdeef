// What a status of the client says beside code and message: GetFieldViolation (field, value and limit of a refusal) and
// GetRetryDelayMs.
#ifndef KEVAL_STATUS_H_
#define KEVAL_STATUS_H_

#include "base/field_error.h"  // IWYU pragma: export

#endif  // KEVAL_STATUS_H_
