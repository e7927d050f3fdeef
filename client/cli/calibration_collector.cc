#include "client/cli/calibration_collector.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/field_error.h"
#include "base/file.h"
#include "base/number.h"
#include "base/sha256.h"
#include "base/text.h"
#include "client/cli/follow.h"
#include "client/cli/proto_json.h"

namespace keval::cli {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMaxFileBytes = std::int64_t{256} << 20;

// `value` without what its key order says, so that two can be compared.
Json Unordered(const nlohmann::ordered_json& value) { return Json(value); }

absl::Status OtherThanFile(absl::string_view field, const Json& old, const Json& now, absl::string_view remedy) {
  const std::string before = PrintableText(old.dump(-1, ' ', true, Json::error_handler_t::replace), 512);
  const std::string here = PrintableText(now.dump(-1, ' ', true, Json::error_handler_t::replace), 512);
  return WithField(absl::FailedPreconditionError(absl::StrCat(field, ": the file's rounds have ", before,
                                                              ", this server has ", here, "; ", remedy)),
                   {std::string(field), here, before});
}

// What CollectJob writes.
bool IsJobNote(const Json& job) {
  const auto has = [&job](const char* key, bool (Json::*is)() const noexcept) {
    const auto found = job.find(key);
    return found != job.end() && ((*found).*is)();
  };
  return job.is_object() && has("request_id", &Json::is_string) && has("name", &Json::is_string) &&
         has("effect", &Json::is_number) && has("rounds", &Json::is_number_unsigned) &&
         has("taken", &Json::is_number_unsigned);
}

std::string EffectText(double effect) {
  return effect == 0 ? "A/A" : absl::StrCat("effect ", effect > 0 ? "+" : "", DoubleText(effect));
}

}  // namespace

CalibrationCollector::CalibrationCollector(const Session& session, const Client& client, CalibrationPlan plan,
                                           v1::BenchmarkSpec spec)
    : session_(session), client_(client), plan_(std::move(plan)), spec_(std::move(spec)) {}

absl::Status CalibrationCollector::Run() {
  if (absl::Status status = Describe(); !status.ok()) return status;
  if (absl::Status status = Open(); !status.ok()) return status;
  if (!file_.job.is_null()) {
    Note("going on with the job that the file names");
    if (absl::Status status = TakeJob(/*resumed=*/true); !status.ok()) return status;
  }
  double effect = 0;
  int rounds = 0;
  while (NextEffect(&effect, &rounds)) {
    if (absl::Status status = CollectJob(effect, rounds); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status CalibrationCollector::Describe() {
  if (spec_.primaries_size() != 1 || spec_.guards_size() != 0 || spec_.controls_size() != 0) {
    return InvalidField("primaries",
                        absl::StrCat(spec_.primaries_size(), " primaries, ", spec_.guards_size(), " guards, ",
                                     spec_.controls_size(), " controls"),
                        "one primary alone in a calibration");
  }
  spec_.mutable_calibration()->set_effect(0);
  spec_.clear_diagnostics();
  for (auto* list : {spec_.mutable_procedure()->mutable_a_sup(), spec_.mutable_procedure()->mutable_a_eq(),
                     spec_.mutable_procedure()->mutable_a_ctl()}) {
    list->Clear();
  }
  spec_.mutable_procedure()->mutable_looks()->Clear();
  spec_.mutable_procedure()->add_looks(plan_.rounds_per_job);
  v1::CreateJobRequest request;
  *request.mutable_spec() = spec_;
  request.set_validate_only(true);
  const auto job = client_.CreateJob(std::move(request), session_.Options());
  if (!job.ok()) return job.status();
  if (job->plan().series().empty()) return absl::DataLossError("the server's plan has no series");
  series_ = job->plan().series(0).series();
  const auto info = client_.GetServerInfo(session_.Options());
  if (!info.ok()) return info.status();
  const auto device = std::find_if(info->devices().begin(), info->devices().end(), [&](const v1::DeviceInfo& one) {
    return one.name() == job->spec().target().device();
  });
  if (device == info->devices().end()) return absl::DataLossError("the server doesn't list the device it chose");

  file_.device = device->model();
  const v1::Procedure& procedure = job->spec().procedure();
  file_.spec = {{"series", series_},
                {"variant", job->spec().base().variant()},
                {"quads", procedure.quads()},
                {"timed_repetitions", procedure.timed_repetitions()},
                {"discarded_repetitions", procedure.discarded_repetitions()},
                {"worker_threads", procedure.worker_threads()}};
  file_.collected = Json::array();
  here_ = {{"device", device->name()}, {"uuid", device->uuid()}, {"build", Unordered(ProtoToJson(info->build()))}};
  return absl::OkStatus();
}

absl::Status CalibrationCollector::CheckResumable(const verdict::CalibrationFile& old) const {
  if (old.device != file_.device) {
    return OtherThanFile("device", old.device, file_.device, "take another file");
  }
  if (!old.job.is_null() && !IsJobNote(old.job)) {
    return InvalidField("job", "something else", "what keval calibrate writes there");
  }
  if (old.spec != file_.spec) return OtherThanFile("spec", old.spec, file_.spec, "take another file");
  if (old.collected.empty() || plan_.across_fingerprints) return absl::OkStatus();
  const Json uuid = old.collected.back().is_object() ? old.collected.back().value("uuid", Json()) : Json();
  if (uuid == here_.at("uuid")) return absl::OkStatus();
  return OtherThanFile("uuid", uuid, here_.at("uuid"),
                       "take another file, or say --across-fingerprints to put both devices into one");
}

absl::Status CalibrationCollector::Open() {
  auto text = ReadWholeFile(plan_.file, kMaxFileBytes);
  if (text.ok()) {
    auto old = verdict::ParseCalibration(*text);
    if (!old.ok()) return old.status();
    if (absl::Status status = CheckResumable(*old); !status.ok()) return status;
    file_ = *std::move(old);
    Note(absl::StrCat("going on with ", plan_.file, ": ", file_.rounds.size(), " rounds"));
  } else if (!absl::IsNotFound(text.status())) {
    return text.status();
  }
  Json before = file_.collected.empty() ? Json() : file_.collected.back();
  if (before.is_object()) before.erase("from_round");
  if (before != here_) {
    Json entry = here_;
    entry["from_round"] = file_.rounds.size();
    file_.collected.push_back(std::move(entry));
  }
  return Save();  // Not after an hour that it can't be.
}

bool CalibrationCollector::NextEffect(double* effect, int* rounds) const {
  std::map<double, int> have;
  for (const verdict::CalibrationRound& round : file_.rounds) ++have[round.effect];
  double least = 1;
  for (const auto& [one, wanted] : plan_.wanted) {
    const double done = wanted == 0 ? 1 : static_cast<double>(have[one]) / wanted;
    if (done >= least) continue;
    least = done;
    *effect = one;
    *rounds = std::clamp(wanted - have[one], kFewestJobRounds, plan_.rounds_per_job);
  }
  return least < 1;
}

absl::Status CalibrationCollector::CollectJob(double effect, int rounds) {
  Note(absl::StrCat(EffectText(effect), ": ", rounds, " rounds, after ", file_.rounds.size(), " in the file"));
  // On disk before there is such a job: whoever is killed from here on finds it again by its request id.
  file_.job = {{"request_id", RandomHex128()}, {"name", ""}, {"effect", effect}, {"rounds", rounds}, {"taken", 0}};
  if (absl::Status status = Save(); !status.ok()) return status;
  return TakeJob(/*resumed=*/false);
}

absl::Status CalibrationCollector::TakeJob(bool resumed) {
  const double effect = file_.job.at("effect");
  const int rounds = file_.job.at("rounds");
  spec_.mutable_calibration()->set_effect(effect);
  spec_.mutable_procedure()->set_looks(0, rounds);
  v1::CreateJobRequest request;
  *request.mutable_spec() = spec_;
  request.set_request_id(file_.job.at("request_id").get<std::string>());
  const auto created = client_.CreateJob(std::move(request), session_.Options());
  if (resumed && absl::IsInvalidArgument(created.status())) {
    // The spec has changed since, in what doesn't part rounds: the job has no use any more.
    const std::string name = file_.job.at("name");
    const auto cancelled = client_.CancelJob(name);
    if (!cancelled.ok() && !absl::IsNotFound(cancelled.status())) return cancelled.status();
    return ForgetJob();
  }
  if (!created.ok()) return created.status();
  if (file_.job.at("name") != created->name()) {
    file_.job["name"] = created->name();
    file_.job["taken"] = 0;  // Another server made it anew.
    if (absl::Status status = Save(); !status.ok()) return status;
  }
  absl::Status kept;
  const auto job = FollowJob(session_, client_, created->name(), [&](const v1::JobEvent& event) {
    if (!kept.ok()) return;
    kept = Keep(event, effect);
    if (!kept.ok()) session_.cancel->Cancel();  // Rounds that can't be kept aren't worth the device's time.
  });
  if (!kept.ok() || absl::IsCancelled(job.status())) {
    // Nobody would look at the job any more. Without the session's cancel source, which has fired.
    if (const auto cancelled = client_.CancelJob(created->name()); !cancelled.ok()) return cancelled.status();
    if (!kept.ok()) return kept;
    if (absl::Status status = ForgetJob(); !status.ok()) return status;
    return job.status();
  }
  if (!job.ok()) return job.status();
  if (absl::Status status = ForgetJob(); !status.ok()) return status;
  if (job->state() == v1::BenchmarkJob::CANCELLED) {
    return resumed ? absl::OkStatus() : absl::CancelledError("somebody cancelled the job");
  }
  if (job->rounds_done() < rounds) {
    return absl::UnavailableError(absl::StrCat(PrintableText(job->name()), " ended ", PrintableText(job->verdict()),
                                               " ", PrintableText(job->reason()), " after ", job->rounds_done(),
                                               " rounds: ", PrintableText(job->detail())));
  }
  return absl::OkStatus();
}

absl::Status CalibrationCollector::ForgetJob() {
  file_.job = nullptr;
  return Save();
}

absl::Status CalibrationCollector::Keep(const v1::JobEvent& event, double effect) {
  if (event.event_case() != v1::JobEvent::kRoundDone) return absl::OkStatus();
  const v1::RoundDone& round = event.round_done();
  if (round.round() <= file_.job.at("taken").get<int>()) return absl::OkStatus();  // Before whoever took it was killed.
  file_.job["taken"] = round.round();
  const auto primary = round.differences().find(series_);
  const auto control = round.differences().find(absl::StrCat("ctl:", series_));
  if (primary == round.differences().end() || control == round.differences().end()) {
    Note(absl::StrCat("round ", round.round(), " has no value (throttled); it isn't kept"));
    return absl::OkStatus();
  }
  const absl::Time started = absl::FromUnixMillis(event.time_unix_ms()) - absl::Seconds(round.seconds());
  file_.rounds.push_back({.effect = effect,
                          .started = absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", started, absl::UTCTimeZone()),
                          .primary = primary->second,
                          .control = control->second});
  return Save();
}

absl::Status CalibrationCollector::Save() const {
  return WriteFileAtomically(plan_.file, verdict::FormatCalibration(file_));
}

}  // namespace keval::cli
