#include "server/job_target.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/dtype.h"
#include "base/field_error.h"
#include "base/number.h"
#include "base/text.h"
#include "server/job_memory.h"

namespace keval::server {
namespace {

absl::Status Cannot(absl::string_view field, absl::string_view value, absl::string_view limit,
                    absl::string_view message) {
  return WithField(absl::FailedPreconditionError(absl::StrCat(field, ": ", message)),
                   {std::string(field), PrintableText(value, 256), std::string(limit)});
}

// A time a call that no device of today goes below: six multiplications for each of N, D, V at a rate far above peak.
double LeastSeconds(const v1::Shape& shape, bool cpu, int threads) {
  constexpr double kGpuOpsPerSecond = 5e15;
  constexpr double kCpuOpsPerSecondAndThread = 5e11;
  const double ops = 6.0 * static_cast<double>(shape.num_tokens()) * static_cast<double>(shape.hidden_size()) *
                     static_cast<double>(shape.vocab_size());
  return ops / (cpu ? kCpuOpsPerSecondAndThread * threads : kGpuOpsPerSecond);
}

absl::Status CheckCapability(const v1::Target& target, const v1::DeviceInfo& device) {
  const std::string& least = target.min_compute_capability();
  if (least.empty()) return absl::OkStatus();
  const auto have = ParseCapability(device.compute_capability());
  if (have.has_value() && *have >= ParseCapability(least).value_or(0)) return absl::OkStatus();
  const std::string shown = device.compute_capability().empty() ? "none" : device.compute_capability();
  return Cannot("target.min_compute_capability", least, absl::StrCat("at most ", shown),
                absl::StrCat("device ", device.name(), " has compute capability ", shown, ", the job needs ", least));
}

absl::Status CheckVariants(const v1::BenchmarkSpec& spec, const SpecContext& context, const v1::DeviceInfo& device) {
  const std::pair<const char*, std::string> arms[] = {{"base.variant", spec.base().variant()},
                                                      {"candidate.variant", spec.candidate().variant()}};
  const std::string kind(device.name().substr(0, device.name().find(':')));
  for (const auto& [field, name] : arms) {
    for (const auto& variant : context.variants) {
      if (variant.name() != name || variant.devices().empty()) continue;
      const bool runs = std::any_of(variant.devices().begin(), variant.devices().end(),
                                    [&](const std::string& d) { return d == device.name() || d == kind; });
      if (!runs) return Cannot(field, name, "", absl::StrCat("variant ", name, " doesn't run on ", device.name()));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckShapesOnDevice(const v1::BenchmarkSpec& spec, const v1::DeviceInfo& device) {
  const bool cpu = device.name() == "cpu";
  const std::pair<const char*, const google::protobuf::RepeatedPtrField<v1::Shape>*> roles[] = {
      {"primaries", &spec.primaries()}, {"guards", &spec.guards()}, {"controls", &spec.controls()}};
  double least_seconds = 0;
  for (const auto& [role, shapes] : roles) {
    for (int i = 0; i < shapes->size(); ++i) {
      const v1::Shape& shape = shapes->Get(i);
      const std::string path = absl::StrCat(role, "[", i, "]");
      if (shape.dtype() == v1::DATA_TYPE_FLOAT64 && !cpu) {
        return Cannot(absl::StrCat(path, ".dtype"), "float64", "float32, bfloat16 or float16",
                      absl::StrCat("float64 is computed on a CPU only, not on ", device.name()));
      }
      // Of all that the device has: what is free when its turn comes isn't known yet, see JobExecution::MakePlan.
      auto fits =
          CheckRoundFits(path, LeastWorkerBytes(shape, cpu), device, std::nullopt, spec.procedure().process_mode());
      if (!fits.ok()) return fits;
      least_seconds += LeastSeconds(shape, cpu, spec.procedure().worker_threads());
    }
  }
  // The fewest calls that a plan can come down to: one timed repetition in each of four blocks of three or four quads.
  const int rounds = spec.procedure().looks(spec.procedure().looks_size() - 1);
  least_seconds *= 4.0 * std::min(4, spec.procedure().quads()) * rounds;
  if (least_seconds <= spec.max_device_seconds()) return absl::OkStatus();
  return Cannot("max_device_seconds", DoubleText(spec.max_device_seconds()),
                absl::StrCat("at least ", FixedText(least_seconds, 1)),
                absl::StrCat("the job needs more than ", FixedText(least_seconds, 1), " device seconds for ", rounds,
                             " rounds, its budget is ", DoubleText(spec.max_device_seconds())));
}

}  // namespace

std::optional<std::int64_t> ParseCapability(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, '.');
  if (parts.size() != 2) return std::nullopt;
  const auto major = ParseUint64(parts[0]);
  const auto minor = ParseUint64(parts[1]);
  if (!major.has_value() || !minor.has_value() || *major > 999 || *minor > 99) return std::nullopt;
  return static_cast<std::int64_t>(*major * 100 + *minor);
}

absl::Status ResolveTarget(const SpecContext& context, v1::BenchmarkSpec* spec) {
  const v1::DeviceInfo* chosen = nullptr;
  std::string names;
  for (const auto& device : context.devices) {
    if (!device.runs_benchmarks()) continue;
    absl::StrAppend(&names, names.empty() ? "" : ", ", device.name());
    const std::string& wanted = spec->target().device();
    if (chosen == nullptr && (wanted.empty() || wanted == device.name())) chosen = &device;
  }
  if (chosen == nullptr) {
    return Cannot("target.device", spec->target().device(), names.empty() ? "" : absl::StrCat("one of ", names),
                  names.empty() ? std::string("no device here runs benchmarks")
                                : absl::StrCat("no device \"", PrintableText(spec->target().device(), 64),
                                               "\" runs benchmarks here, only ", names));
  }
  if (auto status = CheckCapability(spec->target(), *chosen); !status.ok()) return status;
  if (auto status = CheckVariants(*spec, context, *chosen); !status.ok()) return status;
  if (auto status = CheckShapesOnDevice(*spec, *chosen); !status.ok()) return status;
  spec->mutable_target()->set_device(chosen->name());
  return absl::OkStatus();
}

}  // namespace keval::server
