#include "server/job_memory.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "base/field_error.h"
#include "base/number.h"
#include "server/job_spec.h"
#include "server/worker/round_crews.h"

namespace keval::server {
namespace {

// Less than any context with LibTorch's kernels takes (an H200's: about 500 MiB).
constexpr double kLeastContextBytes = 256.0 * 1048576;

// At a time, of a round with every role.
int RoundProcesses(bool cpu) {
  SeriesRun control;
  control.role = verdict::Role::kControl;
  std::size_t most = 0;
  for (const worker::RoundCrew& crew : worker::CrewsOfRound(cpu ? "cpu" : "cuda:0", {SeriesRun(), control})) {
    most = std::max(most, crew.seats.size());
  }
  return static_cast<int>(most);
}

const char* ModeText(v1::ProcessMode mode) {
  return mode == v1::PROCESS_MODE_SEQUENTIAL ? "one after the other" : "side by side";
}

}  // namespace

double RoundBytes(const WorkerBytes& bytes, bool cpu, v1::ProcessMode mode) {
  const double results = bytes.inputs;  // Gradients are as large as what they are gradients of.
  const int processes = RoundProcesses(cpu);
  if (mode == v1::PROCESS_MODE_SEQUENTIAL) {
    return processes * bytes.context + bytes.inputs + bytes.peak + results;
  }
  return processes * (bytes.context + bytes.inputs) + (cpu ? 1 : processes) * bytes.peak + results;
}

WorkerBytes LargestWorker(const std::map<std::string, WorkerBytes>& by_series, bool cpu, v1::ProcessMode mode) {
  WorkerBytes largest;
  for (const auto& [series, bytes] : by_series) {
    if (RoundBytes(bytes, cpu, mode) > RoundBytes(largest, cpu, mode)) largest = bytes;
  }
  return largest;
}

WorkerBytes LeastWorkerBytes(const v1::Shape& shape, bool cpu) {
  const double width = static_cast<double>(DTypeSize(ToWorkShape(shape).dtype));
  const double table_width = std::max(4.0, width);
  const auto n = static_cast<double>(shape.num_tokens());
  const auto d = static_cast<double>(shape.hidden_size());
  const auto v = static_cast<double>(shape.vocab_size());
  const double chunk = std::min(n * v, std::max(v, static_cast<double>(shape.chunk_elems())));
  const double cast_table = width < table_width ? width * v * d : 0;
  return {.context = cpu ? 0 : kLeastContextBytes,
          .inputs = width * (n * d + v * d),
          .peak = width * n * d + table_width * (v * d + chunk) + cast_table,
          .context_assumed = !cpu};
}

double ReserveBytes(const v1::DeviceInfo& device) {
  return std::floor(static_cast<double>(device.memory_bytes()) / 50);
}

absl::Status CheckRoundFits(const std::string& field, const WorkerBytes& bytes, const v1::DeviceInfo& device,
                            std::optional<double> free_bytes, v1::ProcessMode mode) {
  const bool cpu = device.name() == "cpu";
  const auto all = static_cast<double>(device.memory_bytes());
  if (all <= 0 && !free_bytes.has_value()) return absl::OkStatus();
  const double reserve = ReserveBytes(device);
  const double have = std::max(0.0, free_bytes.value_or(all) - reserve);
  const double need = RoundBytes(bytes, cpu, mode);
  if (need <= have) return absl::OkStatus();
  std::string message = absl::StrCat(
      field, ": the ", RoundProcesses(cpu), " processes that a round has at a time need at least ", FixedText(need, 0),
      " bytes ", ModeText(mode), "; of ", device.memory_bytes(), " that ", device.name(), " has, ",
      free_bytes.has_value() ? absl::StrCat(FixedText(*free_bytes, 0), " are free and ") : "", FixedText(reserve, 0),
      " are kept in reserve, so ", FixedText(have, 0), " can be had (each process: context ",
      FixedText(bytes.context, 0), bytes.context_assumed ? ", assumed since it can't be measured" : "", ", inputs ",
      FixedText(bytes.inputs, 0), ", a call ", FixedText(bytes.peak, 0), "; base's results to compare with ",
      FixedText(bytes.inputs, 0), ")");
  if (mode != v1::PROCESS_MODE_SEQUENTIAL) {
    const double weaker = RoundBytes(bytes, cpu, v1::PROCESS_MODE_SEQUENTIAL);
    absl::StrAppend(&message, "; procedure.process_mode: sequential, which is weaker, needs ", FixedText(weaker, 0),
                    weaker <= have ? " and fits" : " and doesn't fit either");
  }
  return WithField(absl::FailedPreconditionError(message),
                   {field, FixedText(need, 0), absl::StrCat("at most ", FixedText(have, 0), " bytes")});
}

}  // namespace keval::server
