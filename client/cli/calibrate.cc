// keval calibrate: rounds whose effect is known, and what the procedure makes of them.
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "base/file.h"
#include "base/number.h"
#include "client/cli/calibration_collector.h"
#include "client/cli/calibration_text.h"
#include "client/cli/commands.h"
#include "client/cli/exit_code.h"
#include "client/cli/flags.h"
#include "client/spec/spec.h"
#include "core/verdict/calibration_json.h"
#include "core/verdict/characteristics.h"

namespace keval::cli {
namespace {

constexpr std::int64_t kMaxFileBytes = std::int64_t{256} << 20;
constexpr std::int64_t kMaxRounds = 100000;
constexpr std::int64_t kMaxRoundsPerJob = 200;  // As many as a job can have.

struct CalibrateFlags {
  std::string spec;
  std::string out;
  std::int64_t aa = 300;
  std::int64_t rounds = 60;
  std::vector<double> effects = {0.003, 0.005, 0.01, 0.03};
  std::int64_t rounds_per_job = 24;
  bool across_fingerprints = false;
  std::string summarize;
  std::vector<double> margin;
  std::int64_t jobs = 4000;
  std::uint64_t seed = 1;
};

absl::Status CheckCount(const char* flag, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return InvalidField(flag, absl::StrCat(value), absl::StrCat("in [", least, ", ", most, "]"));
}

absl::StatusOr<CalibrationPlan> MakePlan(const CalibrateFlags& flags) {
  if (flags.spec.empty() || flags.out.empty()) {
    return InvalidField(flags.spec.empty() ? "SPEC" : "out", "what is left out",
                        "given: calibrate takes SPEC and --out FILE, or --summarize FILE");
  }
  if (auto status = CheckCount("aa", flags.aa, 0, kMaxRounds); !status.ok()) return status;
  if (auto status = CheckCount("rounds", flags.rounds, 0, kMaxRounds); !status.ok()) return status;
  if (auto status = CheckCount("rounds_per_job", flags.rounds_per_job, kFewestJobRounds, kMaxRoundsPerJob);
      !status.ok()) {
    return status;
  }
  CalibrationPlan plan{.file = flags.out,
                       .wanted = {{0, static_cast<int>(flags.aa)}},
                       .rounds_per_job = static_cast<int>(flags.rounds_per_job),
                       .across_fingerprints = flags.across_fingerprints};
  for (const double effect : flags.effects) {
    if (!(std::abs(effect) <= 0.5) || effect == 0) {
      return InvalidField("effects", DoubleText(effect), "within ±0.5 and not 0, in ln units");
    }
    plan.wanted[effect] = static_cast<int>(flags.rounds);
  }
  return plan;
}

int Collect(const Session& session, const CalibrateFlags& flags) {
  const auto plan = MakePlan(flags);
  if (!plan.ok()) return Complain(plan.status(), session.json);
  const auto spec = spec::ReadSpec(flags.spec);
  if (!spec.ok()) return Complain(spec.status(), session.json);
  const auto client = session.Connect();
  if (!client.ok()) return Complain(client.status(), session.json);
  CalibrationCollector collector(session, *client, *plan, *spec);
  if (const auto status = collector.Run(); !status.ok()) return Complain(status, session.json);
  const std::size_t rounds = collector.file().rounds.size();
  const auto status = session.json ? PrintJson(session, {{"file", flags.out}, {"rounds", rounds}})
                                   : PrintText(absl::StrCat(rounds,
                                                            " rounds are in the file; next: keval calibrate "
                                                            "--summarize FILE\n"));
  return status.ok() ? kDone : Complain(status, session.json);
}

int Summarize(const Session& session, const CalibrateFlags& flags) {
  const auto text = ReadWholeFile(flags.summarize, kMaxFileBytes);
  if (!text.ok()) return Complain(text.status(), session.json);
  const auto file = verdict::ParseCalibration(*text);
  if (!file.ok()) return Complain(file.status(), session.json);
  if (auto status = CheckCount("jobs", flags.jobs, 1, 1000000); !status.ok()) return Complain(status, session.json);
  verdict::CharacteristicOptions options;
  options.resampled_jobs = static_cast<int>(flags.jobs);
  options.seed = flags.seed;
  options.is_h200 =
      absl::StrContains(file->device.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace), "H200");
  if (!flags.margin.empty()) options.margin = flags.margin.front();
  const auto shown = verdict::Characterize(file->rounds, options);
  if (!shown.ok()) return Complain(shown.status(), session.json);
  absl::Status status;
  if (session.json) {
    nlohmann::ordered_json document = {{"device", nlohmann::ordered_json(file->device)},
                                       {"rounds", file->rounds.size()}};
    document.update(verdict::CharacteristicsToJson(*shown));
    status = PrintJson(session, document);
  } else {
    status = PrintText(CharacteristicsText(*file, *shown));
  }
  return status.ok() ? kDone : Complain(status, session.json);
}

int Calibrate(const Session& session, const CalibrateFlags& flags) {
  return flags.summarize.empty() ? Collect(session, flags) : Summarize(session, flags);
}

}  // namespace

void AddCalibrate(CLI::App* app, Action* action) {
  CLI::App* const command =
      app->add_subcommand("calibrate", "collect rounds whose effect is known into a file, or summarize one (offline)");
  const auto flags = std::make_shared<CalibrateFlags>();
  command->add_option("SPEC", flags->spec, "YAML or JSON file with one primary: the shape, base's variant, procedure");
  command->add_option("--out", flags->out, "the file; one that exists is gone on with");
  AddInt64(command, "--aa", &flags->aa, "A/A rounds that the file is to hold; default 300");
  AddInt64(command, "--rounds", &flags->rounds, "rounds of each injected effect; default 60");
  AddDoubles(command, "--effects", &flags->effects,
             "what is injected, in ln units, a gain positive; default 0.003,0.005,0.01,0.03");
  AddInt64(command, "--rounds_per_job", &flags->rounds_per_job, "default 24");
  command->add_flag("--across-fingerprints,--across_fingerprints", flags->across_fingerprints,
                    "go on with a file of another device of the same model");
  CLI::Option* const summarize =
      command->add_option("--summarize", flags->summarize, "show what the rounds of this file say; needs no server");
  AddDoubles(command, "--margin", &flags->margin, "half-width of \"immaterial\"; default: from the A/A rounds")
      ->type_name("X")
      ->needs(summarize);
  AddInt64(command, "--jobs", &flags->jobs, "resampled jobs; default 4000")->needs(summarize);
  AddUint64(command, "--seed", &flags->seed, "of the resampling; default 1")->needs(summarize);
  command->callback([=] { *action = [flags](Session& session) { return Calibrate(session, *flags); }; });
}

}  // namespace keval::cli
