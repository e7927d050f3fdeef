#include "server/contract_handler.h"

#include <atomic>
#include <utility>
#include <variant>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "base/text.h"
#include "server/gradient_request.h"

namespace keval::server {
namespace {

constexpr int kMaxChecks = 2;
constexpr std::size_t kMaxDetailBytes = 1024;
constexpr std::int64_t kRetryDelayMs = 5000;

v1::ContractRow ToProto(const ContractRowData& row) {
  v1::ContractRow proto;
  proto.set_id(row.id);
  proto.set_arm(row.arm);
  proto.set_case_name(row.case_name);
  proto.set_measured(row.measured);
  proto.set_limit(row.limit);
  proto.set_why(row.why);
  if (row.status == "pass") {
    proto.set_status(v1::ContractRow::ROW_STATUS_PASS);
  } else if (row.status == "not_applicable") {
    proto.set_status(v1::ContractRow::ROW_STATUS_NOT_APPLICABLE);
  } else {
    proto.set_status(v1::ContractRow::ROW_STATUS_FAIL);
  }
  return proto;
}

// The variant's refusal under the name of the arm that asks for it.
absl::Status CheckArm(absl::string_view arm, absl::string_view variant,
                      const std::vector<linear_logp::VariantDescription>& variants) {
  absl::Status status = CheckVariant(variant, variants);
  const std::optional<FieldViolation> violation = GetFieldViolation(status);
  if (!violation.has_value()) return status;
  return InvalidField(arm, violation->value, violation->limit);
}

}  // namespace

absl::Status ContractHandler::Check(const CallContext& call, const v1::CheckContractRequest& request,
                                    absl::FunctionRef<bool(const v1::ContractRow&)> send) {
  JobArms arms;
  arms.base_variant = request.base().empty() ? "portable_matmul_add" : request.base();
  arms.candidate_variant = request.candidate().empty() ? "portable_addmm" : request.candidate();
  arms.seed = request.seed();
  if (absl::Status status = CheckArm("base", arms.base_variant, *variants_); !status.ok()) return status;
  if (absl::Status status = CheckArm("candidate", arms.candidate_variant, *variants_); !status.ok()) return status;
  absl::StatusOr<const ServedDevice*> device = devices_->Any(request.device());
  if (!device.ok()) return device.status();
  arms.device = (*device)->name;
  {
    MutexLock lock(&mutex_);
    if (running_ >= kMaxChecks) {
      return WithRetryDelayMs(
          absl::ResourceExhaustedError(absl::StrCat(kMaxChecks, " contract checks run already, the most at once")),
          kRetryDelayMs);
    }
    ++running_;
  }
  const absl::Cleanup done = [this] {
    MutexLock lock(&mutex_);
    --running_;
  };

  const std::unique_ptr<RoundCollector> collector = collectors_();
  std::atomic<bool> broken = false;
  const RoundCollector::Check check = [&]() -> absl::Status {
    if (broken) return absl::CancelledError("the caller has gone");
    return call.check();
  };
  const auto row = [&](const ContractRowData& data) {
    if (!broken && !send(ToProto(data))) broken = true;
  };
  absl::StatusOr<Collected<std::vector<ContractRowData>>> rows =
      collector->Contract(arms, row, (*device)->lease, check);
  if (!rows.ok()) return rows.status();
  if (const auto* failure = std::get_if<WorkFailure>(&*rows)) {
    // The detail may quote what the worker wrote to its stderr.
    return absl::UnavailableError(absl::StrCat("worker of ", failure->cause, ": ", failure->reason, ": ",
                                               PrintableText(failure->detail, kMaxDetailBytes)));
  }
  return broken ? absl::CancelledError("the caller has gone") : absl::OkStatus();
}

}  // namespace keval::server
