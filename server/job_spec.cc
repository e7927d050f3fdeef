#include "server/job_spec.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/dtype.h"
#include "base/field_error.h"
#include "base/number.h"
#include "base/sha256.h"
#include "base/shape.h"
#include "base/text.h"
#include "core/linear_logp/chunk_plan.h"
#include "core/verdict/config.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "proto/data_type.h"
#include "server/job_calibration.h"
#include "server/job_target.h"

namespace keval::server {
namespace {

constexpr absl::string_view kBaseVariant = "portable_matmul_add";
constexpr absl::string_view kCandidateVariant = "portable_addmm";
constexpr std::size_t kMaxDisplayNameBytes = 256;
constexpr int kMaxListEntries = 16;  // Of looks, levels and sweeps.
constexpr int kMaxRounds = 200;
constexpr int kMinFirstLook = 3;
constexpr double kMaxLevel = 0.25;
constexpr double kMaxMargin = 0.5;
constexpr double kMaxHangTimeoutSeconds = 3600;
// Levels spent at the looks where the spec names none.
constexpr double kASup[] = {.002, .002, .003, .003};
constexpr double kAEq[] = {.010, .010, .015, .015};
constexpr double kACtl[] = {.001, .001, .0015, .0015};
constexpr int kDefaultLooks[] = {6, 10, 16, 24};

absl::Status InvalidInt(absl::string_view field, std::int64_t value, absl::string_view limit) {
  return InvalidField(field, absl::StrCat(value), limit);
}

absl::Status CheckDisplayName(absl::string_view field, const std::string& name) {
  if (name.size() > kMaxDisplayNameBytes) {
    return InvalidField(field, absl::StrCat(name.size(), " bytes"),
                        absl::StrCat("at most ", kMaxDisplayNameBytes, " bytes"));
  }
  if (!IsValidUtf8(name)) return InvalidField(field, name, "valid UTF-8");
  return absl::OkStatus();
}

// A dimension that is too large for int64 arithmetic is named itself, not the product.
absl::Status CheckProducts(const std::string& path, const v1::Shape& shape) {
  const std::pair<std::int64_t, std::int64_t> logits = {shape.num_tokens(), shape.vocab_size()};
  const std::pair<std::int64_t, std::int64_t> hidden = {shape.num_tokens(), shape.hidden_size()};
  const std::pair<std::int64_t, std::int64_t> weight = {shape.vocab_size(), shape.hidden_size()};
  const std::pair<const char*, std::pair<std::int64_t, std::int64_t>> products[] = {
      {"num_tokens", logits}, {"num_tokens", hidden}, {"vocab_size", weight}};
  for (const auto& [name, sides] : products) {
    const auto elements = CheckedMultiply(sides.first, sides.second);
    // 8 bytes an element: no tensor of the operator has wider ones.
    if (!elements.has_value() || !CheckedMultiply(*elements, 8).has_value()) {
      const std::int64_t other = sides.second;
      return InvalidInt(absl::StrCat(path, ".", name), sides.first,
                        absl::StrCat("such that its product with ", other, " fits 63 bits of bytes"));
    }
  }
  const auto plan =
      linear_logp::MakeChunkPlan(shape.num_tokens(), shape.hidden_size(), shape.vocab_size(), shape.chunk_elems());
  if (plan.ok()) return absl::OkStatus();
  const auto violation = GetFieldViolation(plan.status());
  if (!violation.has_value()) return plan.status();
  return InvalidField(absl::StrCat(path, ".", violation->field), violation->value, violation->limit);
}

// Before anything is copied: a spec with a million shapes costs no more than these comparisons.
absl::Status CheckCounts(const v1::BenchmarkSpec& spec, const SpecContext& context) {
  if (spec.primaries().empty()) return InvalidField("primaries", "0 shapes", "at least 1 shape");
  const int max_series = context.limits.max_series() > 0 ? context.limits.max_series() : kDefaultMaxSeries;
  const int controls = std::max(1, spec.controls_size());
  const std::int64_t series = std::int64_t{spec.primaries_size()} + spec.guards_size() + controls;
  if (series > max_series) {
    const int largest = std::max({spec.primaries_size(), spec.guards_size(), spec.controls_size()});
    const char* field = largest == spec.primaries_size() ? "primaries"
                        : largest == spec.guards_size()  ? "guards"
                                                         : "controls";
    return InvalidField(field, absl::StrCat(largest, " shapes, ", series, " series in all"),
                        absl::StrCat("few enough for ", max_series, " series in all"));
  }
  const int max_margins = max_series + 2;  // A series each, and the two roles.
  if (static_cast<std::int64_t>(spec.margins().size()) > max_margins) {
    return InvalidField("margins", absl::StrCat(spec.margins().size(), " entries"),
                        absl::StrCat("at most ", max_margins, " entries"));
  }
  const auto& procedure = spec.procedure();
  const std::pair<const char*, int> lists[] = {{"diagnostics.chunk_sweep", spec.diagnostics().chunk_sweep_size()},
                                               {"procedure.looks", procedure.looks_size()},
                                               {"procedure.a_sup", procedure.a_sup_size()},
                                               {"procedure.a_eq", procedure.a_eq_size()},
                                               {"procedure.a_ctl", procedure.a_ctl_size()}};
  for (const auto& [field, size] : lists) {
    if (size > kMaxListEntries) {
      return InvalidField(field, absl::StrCat(size, " entries"), absl::StrCat("at most ", kMaxListEntries, " entries"));
    }
  }
  return absl::OkStatus();
}

absl::Status NormalizeShape(const std::string& path, v1::Shape* shape) {
  if (auto status = CheckDisplayName(absl::StrCat(path, ".display_name"), shape->display_name()); !status.ok()) {
    return status;
  }
  const std::pair<const char*, std::int64_t> sizes[] = {
      {"num_tokens", shape->num_tokens()}, {"hidden_size", shape->hidden_size()}, {"vocab_size", shape->vocab_size()}};
  for (const auto& [name, value] : sizes) {
    if (value < 1) return InvalidInt(absl::StrCat(path, ".", name), value, "at least 1");
  }
  if (shape->dtype() == v1::DATA_TYPE_UNSPECIFIED) shape->set_dtype(v1::DATA_TYPE_FLOAT32);
  const std::optional<DType> dtype = ToDType(shape->dtype());
  if (!dtype.has_value() || !IsFloating(*dtype)) {
    return InvalidField(absl::StrCat(path, ".dtype"),
                        v1::DataType_IsValid(shape->dtype()) ? v1::DataType_Name(shape->dtype())
                                                             : absl::StrCat(static_cast<int>(shape->dtype())),
                        "float32, bfloat16, float16 or float64");
  }
  if (!v1::Autocast_IsValid(shape->autocast())) {
    return InvalidInt(absl::StrCat(path, ".autocast"), shape->autocast(), "none, bfloat16 or float16");
  }
  if (shape->autocast() == v1::AUTOCAST_UNSPECIFIED) shape->set_autocast(v1::AUTOCAST_NONE);
  if (shape->autocast() != v1::AUTOCAST_NONE && shape->dtype() == v1::DATA_TYPE_FLOAT64) {
    return InvalidField(absl::StrCat(path, ".autocast"), AutocastName(shape->autocast()), "none with dtype float64");
  }
  if (shape->chunk_elems() < 0) {
    return InvalidInt(absl::StrCat(path, ".chunk_elems"), shape->chunk_elems(), "at least 1, or 0 for the default");
  }
  if (shape->chunk_elems() == 0) shape->set_chunk_elems(linear_logp::kDefaultChunkElems);
  return CheckProducts(path, *shape);
}

absl::Status NormalizeShapes(v1::BenchmarkSpec* spec) {
  if (spec->controls().empty()) *spec->add_controls() = spec->primaries(0);
  const std::pair<const char*, google::protobuf::RepeatedPtrField<v1::Shape>*> roles[] = {
      {"primaries", spec->mutable_primaries()},
      {"guards", spec->mutable_guards()},
      {"controls", spec->mutable_controls()}};
  std::map<std::string, std::string> seen;  // Series to the path that has it.
  for (const auto& [role, shapes] : roles) {
    for (int i = 0; i < shapes->size(); ++i) {
      const std::string path = absl::StrCat(role, "[", i, "]");
      if (auto status = NormalizeShape(path, shapes->Mutable(i)); !status.ok()) return status;
      const bool control = shapes == spec->mutable_controls();
      const std::string series = absl::StrCat(control ? "ctl:" : "", SeriesName(shapes->Get(i)));
      const auto [other, fresh] = seen.emplace(series, path);
      if (!fresh) return InvalidField(path, series, absl::StrCat("different from ", other->second));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckMargins(const v1::BenchmarkSpec& spec) {
  std::set<std::string> known = {"primary", "guard"};
  for (const auto& shape : spec.primaries()) known.insert(SeriesName(shape));
  for (const auto& shape : spec.guards()) known.insert(SeriesName(shape));
  // In order, so that the same spec is always refused for the same entry.
  const std::map<std::string, double> margins(spec.margins().begin(), spec.margins().end());
  for (const auto& [name, margin] : margins) {
    const std::string field = absl::StrCat("margins[\"", PrintableText(name, 128), "\"]");
    if (!known.contains(name)) {
      return InvalidField(field, name, "\"primary\", \"guard\" or the series name of a primary or guard");
    }
    if (!(margin > 0 && margin <= kMaxMargin)) {
      return InvalidField(field, DoubleText(margin), absl::StrCat("in (0, ", DoubleText(kMaxMargin), "]"));
    }
  }
  return absl::OkStatus();
}

absl::Status NormalizeLevels(absl::string_view field, int looks, absl::Span<const double> defaults,
                             google::protobuf::RepeatedField<double>* levels) {
  if (levels->empty()) {
    if (looks > static_cast<int>(defaults.size())) {
      return InvalidField(field, "none", absl::StrCat("given, one for each of the ", looks, " looks"));
    }
    levels->Add(defaults.begin(), defaults.begin() + looks);
  }
  if (levels->size() != looks) {
    return InvalidField(field, absl::StrCat(levels->size(), " levels"),
                        absl::StrCat("one for each of the ", looks, " looks"));
  }
  for (int i = 0; i < levels->size(); ++i) {
    if (!(levels->Get(i) >= verdict::kMinLevel && levels->Get(i) <= kMaxLevel)) {
      return InvalidField(absl::StrCat(field, "[", i, "]"), DoubleText(levels->Get(i)),
                          absl::StrCat("in [", DoubleText(verdict::kMinLevel), ", ", DoubleText(kMaxLevel), "]"));
    }
  }
  return absl::OkStatus();
}

absl::Status NormalizeLooks(v1::Procedure* procedure) {
  auto* looks = procedure->mutable_looks();
  if (looks->empty()) looks->Add(std::begin(kDefaultLooks), std::end(kDefaultLooks));
  for (int i = 0; i < looks->size(); ++i) {
    const int least = i == 0 ? kMinFirstLook : looks->Get(i - 1) + 1;
    if (looks->Get(i) < least || looks->Get(i) > kMaxRounds) {
      return InvalidInt(absl::StrCat("procedure.looks[", i, "]"), looks->Get(i),
                        absl::StrCat("in [", least, ", ", kMaxRounds, "], ascending"));
    }
  }
  // No look of fewer rounds decides (docs/verdict.md, "short"): a job that ends there would run for nothing.
  const int last = looks->size() - 1;
  if (looks->Get(last) < verdict::kMinDecidingRounds) {
    return InvalidInt(absl::StrCat("procedure.looks[", last, "]"), looks->Get(last),
                      absl::StrCat("at least ", verdict::kMinDecidingRounds, " where it is the last"));
  }
  return absl::OkStatus();
}

absl::Status NormalizeProcedure(v1::Procedure* procedure) {
  if (auto status = NormalizeLooks(procedure); !status.ok()) return status;
  const int looks = procedure->looks_size();
  if (auto s = NormalizeLevels("procedure.a_sup", looks, kASup, procedure->mutable_a_sup()); !s.ok()) return s;
  if (auto s = NormalizeLevels("procedure.a_eq", looks, kAEq, procedure->mutable_a_eq()); !s.ok()) return s;
  if (auto s = NormalizeLevels("procedure.a_ctl", looks, kACtl, procedure->mutable_a_ctl()); !s.ok()) return s;
  if (procedure->quads() == 0) procedure->set_quads(8);
  if (procedure->timed_repetitions() == 0) procedure->set_timed_repetitions(5);
  if (procedure->discarded_repetitions() == 0) procedure->set_discarded_repetitions(2);
  if (procedure->worker_threads() == 0) procedure->set_worker_threads(1);
  struct Bound {
    const char* name;
    std::int64_t value;
    std::int64_t least;
    std::int64_t most;
  };
  const Bound bounds[] = {{"quads", procedure->quads(), 3, 64},
                          {"timed_repetitions", procedure->timed_repetitions(), 1, 100},
                          {"discarded_repetitions", procedure->discarded_repetitions(), 1, 100},
                          {"worker_threads", procedure->worker_threads(), 1, 1024}};
  for (const Bound& bound : bounds) {
    if (bound.value < bound.least || bound.value > bound.most) {
      return InvalidInt(absl::StrCat("procedure.", bound.name), bound.value,
                        absl::StrCat("in [", bound.least, ", ", bound.most, "], or 0 for the default"));
    }
  }
  if (procedure->hang_timeout_seconds() == 0) procedure->set_hang_timeout_seconds(120);
  if (!(procedure->hang_timeout_seconds() >= 1 && procedure->hang_timeout_seconds() <= kMaxHangTimeoutSeconds)) {
    return InvalidField("procedure.hang_timeout_seconds", DoubleText(procedure->hang_timeout_seconds()),
                        absl::StrCat("in [1, ", DoubleText(kMaxHangTimeoutSeconds), "], or 0 for the default"));
  }
  if (!v1::ProcessMode_IsValid(procedure->process_mode())) {
    return InvalidInt("procedure.process_mode", procedure->process_mode(), "concurrent or sequential");
  }
  if (procedure->process_mode() == v1::PROCESS_MODE_UNSPECIFIED) {
    procedure->set_process_mode(v1::PROCESS_MODE_CONCURRENT);
  }
  return absl::OkStatus();
}

// A sweep forces its numbers of chunks on the primaries, so each must be one that they can be cut into.
absl::Status CheckDiagnostics(const v1::BenchmarkSpec& spec) {
  const auto& sweep = spec.diagnostics().chunk_sweep();
  std::int64_t most = spec.primaries(0).num_tokens();
  for (const auto& shape : spec.primaries()) most = std::min(most, shape.num_tokens());
  std::set<std::int64_t> seen;
  for (int i = 0; i < sweep.size(); ++i) {
    const std::string field = absl::StrCat("diagnostics.chunk_sweep[", i, "]");
    if (sweep.Get(i) < 1 || sweep.Get(i) > most) {
      return InvalidInt(field, sweep.Get(i), absl::StrCat("in [1, ", most, "], the primaries' num_tokens"));
    }
    if (!seen.insert(sweep.Get(i)).second) return InvalidInt(field, sweep.Get(i), "different from the others");
    for (const auto& shape : spec.primaries()) {
      const std::int64_t chunk_tokens = (shape.num_tokens() - 1) / sweep.Get(i) + 1;
      const std::int64_t chunks = (shape.num_tokens() - 1) / chunk_tokens + 1;
      if (chunks == sweep.Get(i)) continue;
      return InvalidInt(field, sweep.Get(i),
                        absl::StrCat("a number of equal chunks that ", shape.num_tokens(), " tokens make (", chunks,
                                     " would come nearest)"));
    }
  }
  return absl::OkStatus();
}

absl::Status NormalizeArm(absl::string_view path, absl::string_view fallback, const SpecContext& context,
                          v1::Arm* arm) {
  if (arm->variant().empty()) arm->set_variant(std::string(fallback));
  std::string names;
  for (const auto& variant : context.variants) {
    if (variant.name() == arm->variant()) return absl::OkStatus();
    absl::StrAppend(&names, names.empty() ? "" : ", ", variant.name());
  }
  return InvalidField(absl::StrCat(path, ".variant"), arm->variant(), absl::StrCat("one of ", names));
}

// Both arms of a calibration are base.
absl::Status NormalizeCalibration(v1::BenchmarkSpec* spec) {
  if (!spec->has_calibration()) return absl::OkStatus();
  const double effect = spec->calibration().effect();
  if (!(std::abs(effect) <= kMaxMargin)) {
    return InvalidField("calibration.effect", DoubleText(effect),
                        absl::StrCat("in [-", DoubleText(kMaxMargin), ", ", DoubleText(kMaxMargin), "]"));
  }
  if (spec->candidate().variant().empty()) spec->mutable_candidate()->set_variant(spec->base().variant());
  if (spec->candidate().variant() == spec->base().variant()) return absl::OkStatus();
  return InvalidField("candidate.variant", spec->candidate().variant(),
                      absl::StrCat(spec->base().variant(), " as base's, or empty, in a calibration"));
}

absl::Status NormalizeBudget(const SpecContext& context, v1::BenchmarkSpec* spec) {
  const double most = context.limits.max_job_device_seconds() > 0 ? context.limits.max_job_device_seconds()
                                                                  : kDefaultMaxJobDeviceSeconds;
  if (spec->max_device_seconds() == 0) spec->set_max_device_seconds(most);
  if (!(spec->max_device_seconds() > 0 && spec->max_device_seconds() <= most)) {
    return InvalidField("max_device_seconds", DoubleText(spec->max_device_seconds()),
                        absl::StrCat("in (0, ", DoubleText(most), "], or 0 for the server's limit"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::BenchmarkSpec> NormalizeSpec(const v1::BenchmarkSpec& spec, const SpecContext& context) {
  if (auto status = CheckCounts(spec, context); !status.ok()) return status;
  if (auto status = CheckDisplayName("display_name", spec.display_name()); !status.ok()) return status;
  v1::BenchmarkSpec out = spec;
  if (!out.target().min_compute_capability().empty() &&
      !ParseCapability(out.target().min_compute_capability()).has_value()) {
    return InvalidField("target.min_compute_capability", out.target().min_compute_capability(),
                        "like \"9.0\", or empty");
  }
  out.mutable_target();
  if (auto s = NormalizeArm("base", kBaseVariant, context, out.mutable_base()); !s.ok()) return s;
  if (auto s = NormalizeCalibration(&out); !s.ok()) return s;
  if (auto s = NormalizeArm("candidate", kCandidateVariant, context, out.mutable_candidate()); !s.ok()) return s;
  if (auto s = NormalizeShapes(&out); !s.ok()) return s;
  if (auto s = CheckMargins(out); !s.ok()) return s;
  if (auto s = CheckMarginCalibrations(out); !s.ok()) return s;
  if (auto s = CheckDiagnostics(out); !s.ok()) return s;
  if (auto s = NormalizeProcedure(out.mutable_procedure()); !s.ok()) return s;
  if (auto s = NormalizeBudget(context, &out); !s.ok()) return s;
  return out;
}

std::string SpecDigest(const v1::BenchmarkSpec& normalized) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);  // Margins are a map.
    normalized.SerializeToCodedStream(&coded);
  }
  return Sha256Hex(bytes);
}

std::string SeriesName(const v1::Shape& shape) {
  std::string name =
      absl::StrCat(shape.num_tokens(), "x", shape.hidden_size(), "x", shape.vocab_size(), "/",
                   DTypeName(ToDType(shape.dtype()).value_or(DType::kFloat32)), "/", shape.bias() ? "bias" : "nobias");
  if (AutocastName(shape.autocast()) != "none") absl::StrAppend(&name, "/autocast=", AutocastName(shape.autocast()));
  if (shape.chunk_elems() != 0 && shape.chunk_elems() != linear_logp::kDefaultChunkElems) {
    absl::StrAppend(&name, "/chunk_elems=", shape.chunk_elems());
  }
  return name;
}

WorkShape ToWorkShape(const v1::Shape& shape) {
  return {.num_tokens = shape.num_tokens(),
          .hidden_size = shape.hidden_size(),
          .vocab_size = shape.vocab_size(),
          .dtype = ToDType(shape.dtype()).value_or(DType::kFloat32),
          .bias = shape.bias(),
          .autocast = std::string(AutocastName(shape.autocast())),
          .chunk_elems = shape.chunk_elems()};
}

JobArms ToJobArms(const v1::BenchmarkSpec& normalized) {
  return {.base_variant = normalized.base().variant(),
          .candidate_variant = normalized.candidate().variant(),
          .device = normalized.target().device(),
          .force_variant = normalized.target().force_variant(),
          .worker_threads = normalized.procedure().worker_threads(),
          .hang_timeout_seconds = normalized.procedure().hang_timeout_seconds(),
          .seed = normalized.seed(),
          .injected_effect = normalized.calibration().effect(),
          .sequential = normalized.procedure().process_mode() == v1::PROCESS_MODE_SEQUENTIAL};
}

}  // namespace keval::server
