#include "core/contract/contract.h"

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "core/contract/evidence.h"
#include "core/linear_logp/cuda_device.h"
#include "core/linear_logp/failure_text.h"
#include "core/linear_logp/numerics.h"

namespace keval::contract {
namespace {

using linear_logp::Variant;

class ThreadsScope {
 public:
  explicit ThreadsScope(int threads) : previous_(at::get_num_threads()) {
    if (threads > 0) at::set_num_threads(threads);
  }
  ~ThreadsScope() { at::set_num_threads(previous_); }
  ThreadsScope(const ThreadsScope&) = delete;
  ThreadsScope& operator=(const ThreadsScope&) = delete;

 private:
  int previous_;
};

absl::Status CheckDevice(const linear_logp::Device& device) {
  const linear_logp::Devices devices = linear_logp::ListDevices();
  const bool found = std::any_of(devices.devices.begin(), devices.devices.end(),
                                 [&](const auto& d) { return d.device.Name() == device.Name(); });
  if (found) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("device ", device.Name(), " can't be used here", devices.note.empty() ? "" : ": ", devices.note));
}

// Production paths first, as CONTRACT.md has them; values before what needs more calls.
std::vector<Line> AllLines() {
  std::vector<Line> lines;
  for (const auto group : {ProductionPathLines(), ValueLines(), BehaviourLines(), LargeLines()}) {
    lines.insert(lines.end(), group.begin(), group.end());
  }
  // "P2" before "P10" before "C1".
  const auto order = [](const Line& line) {
    const std::string id = line.id;
    return std::pair(id[0] == 'C', std::pair(id.size(), id));
  };
  std::sort(lines.begin(), lines.end(), [&](const Line& a, const Line& b) { return order(a) < order(b); });
  return lines;
}

std::string TextOf(const std::exception& error) {
  const auto* const torch_error = dynamic_cast<const c10::Error*>(&error);
  return torch_error == nullptr ? error.what() : torch_error->what_without_backtrace();
}

// What is thrown while a line is judged is the arm's doing, its results being such that they can't be, but for want of
// memory and a lost device. Takes the mark back.
Row CheckLine(const Line& line, const Evidence& evidence, const Arm& arm, RunningMark* running) {
  Tally tally(line.id, line.of_both ? "both" : arm.name());
  try {
    line.check(evidence, arm, &tally);
  } catch (const linear_logp::Stopped&) {
    throw;
  } catch (const std::exception& error) {
    StopIfLost(arm.device());
    const absl::Status status = linear_logp::StatusOfFailure(error);
    if (absl::IsResourceExhausted(status) || absl::IsUnavailable(status)) throw;
    running->store(Running::kHarness);
    tally.Fail("", absl::StrCat("threw: ", TextOf(error)));
  }
  Row row = tally.ToRow();
  // C2 binds every variant: one that declined each of its inputs has shown nothing, by this or any other row.
  if (row.id == "C2" && row.status == RowStatus::kNotApplicable) {
    row.status = RowStatus::kFail;
    row.why = absl::StrCat("none of its values were checked: ", row.why);
  }
  return row;
}

// `error` ended the check on `device` while `running` ran.
absl::Status EndedBy(const std::exception& error, const linear_logp::Device& device, Running running) {
  if (device.cuda) {
    if (absl::Status lost = linear_logp::CudaLoss(device.index); !lost.ok()) return lost;
  }
  absl::Status status = linear_logp::StatusOfFailure(error);
  if (running != Running::kHarness) return status;
  return {status.code(),
          absl::StrCat("the contract check's own code failed on ", device.Name(), ": ", status.message())};
}

std::vector<Row> Check(Evidence* evidence, const std::function<void(const Row&)>& on_row, RunningMark* running) {
  Gather(evidence);
  std::vector<Row> rows;
  for (const Line& line : AllLines()) {
    for (const Arm& arm : evidence->arms) {
      if (line.of_both && arm.index() == 0) continue;
      rows.push_back(CheckLine(line, *evidence, arm, running));
      if (on_row) on_row(rows.back());
    }
  }
  return rows;
}

}  // namespace

absl::string_view RowStatusName(RowStatus status) {
  switch (status) {
    case RowStatus::kPass:
      return "pass";
    case RowStatus::kFail:
      return "fail";
    case RowStatus::kNotApplicable:
      return "not_applicable";
  }
  return "fail";
}

absl::StatusOr<std::vector<Row>> CheckContract(const ContractOptions& options,
                                               const std::function<void(const Row&)>& on_row,
                                               const linear_logp::ContinueCheck& check) {
  const absl::StatusOr<const Variant*> base = linear_logp::FindVariant(options.base);
  if (!base.ok()) return base.status();
  const absl::StatusOr<const Variant*> candidate = linear_logp::FindVariant(options.candidate);
  if (!candidate.ok()) return candidate.status();
  if (absl::Status status = CheckDevice(options.device); !status.ok()) return status;
  RunningMark unasked = Running::kHarness;
  RunningMark* const running = options.running == nullptr ? &unasked : options.running;
  linear_logp::SetReproducibleNumerics();
  const ThreadsScope threads(options.threads);
  try {
    const at::NoGradGuard no_grad;
    Evidence evidence = {
        CaseMaker(options.seed, options.device),
        {Arm(0, *base, options.device, check, running), Arm(1, *candidate, options.device, check, running)},
        options.quick,
        {}};
    return Check(&evidence, on_row, running);
  } catch (const linear_logp::Stopped& stopped) {
    return stopped.status;
  } catch (const std::exception& error) {
    return EndedBy(error, options.device, running->load());
  }
}

bool Passed(const std::vector<Row>& rows) {
  return !rows.empty() &&
         std::none_of(rows.begin(), rows.end(), [](const Row& row) { return row.status == RowStatus::kFail; });
}

}  // namespace keval::contract
