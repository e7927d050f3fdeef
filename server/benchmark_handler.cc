#include "server/benchmark_handler.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/field_error.h"
#include "base/number.h"
#include "base/sha256.h"
#include "base/text.h"
#include "proto/job_state.h"
#include "server/job_calibration.h"
#include "server/job_plan.h"
#include "server/job_target.h"
#include "server/report_builder.h"

namespace keval::server {
namespace {

constexpr std::size_t kMaxRequestIdBytes = 128;
constexpr int kDefaultPageSize = 100;
constexpr int kMaxPageSize = 1000;
constexpr int kEventsAtOnce = 256;
constexpr std::size_t kReportPieceBytes = std::size_t{1} << 20;
constexpr const char* kReportFiles[] = {"report.json", "samples.csv", "diagnostics.csv", "excluded.csv"};
constexpr std::chrono::milliseconds kCheckInterval{50};
constexpr std::int64_t kDrainRetryMs = 2000;

absl::Status NoSuchJob(absl::string_view name) {
  return WithField(absl::NotFoundError(absl::StrCat("no job \"", PrintableText(name, 128), "\"")),
                   {"name", PrintableText(name, 128), ""});
}

absl::Status Draining() { return WithRetryDelayMs(absl::UnavailableError("the server is draining"), kDrainRetryMs); }

absl::Status CheckRequestId(const std::string& request_id) {
  if (request_id.size() > kMaxRequestIdBytes) {
    return InvalidField("request_id", absl::StrCat(request_id.size(), " bytes"),
                        absl::StrCat("at most ", kMaxRequestIdBytes, " bytes"));
  }
  if (PrintableText(request_id, kMaxRequestIdBytes) != request_id) {
    return InvalidField("request_id", request_id, "printable characters");
  }
  return absl::OkStatus();
}

// Never 0, which stands for "not given".
std::uint64_t DrawSeed() {
  std::uint64_t seed = 0;
  while (seed == 0) {
    const bool parsed = absl::SimpleHexAtoi(RandomHex128().substr(0, 16), &seed);
    if (!parsed) seed = 0;
  }
  return seed;
}

// Sends one file in pieces; false when the stream has broken.
bool SendFile(const ReportFile& file, const std::function<bool(const v1::GetReportResponse&)>& send) {
  std::size_t sent = 0;
  do {
    const std::size_t size = std::min(kReportPieceBytes, file.data.size() - sent);
    v1::GetReportResponse piece;
    if (sent == 0) piece.set_file_name(file.name);
    piece.set_data(file.data.substr(sent, size));
    sent += size;
    if (sent == file.data.size()) piece.set_sha256(Sha256Bytes(file.data));
    if (!send(piece)) return false;
  } while (sent < file.data.size());
  return true;
}

}  // namespace

BenchmarkHandler::BenchmarkHandler(JobStore* store, JobRunner* runner, SpecContext context)
    : store_(store), runner_(runner), context_(std::move(context)) {}

absl::StatusOr<StoredJob> BenchmarkHandler::OwnJob(absl::string_view principal, absl::string_view name) const {
  auto stored = store_->Get(name);
  if (absl::IsNotFound(stored.status())) return NoSuchJob(name);
  if (!stored.ok()) return stored.status();
  if (stored->principal != std::string(principal)) return NoSuchJob(name);
  return stored;
}

absl::StatusOr<v1::BenchmarkJob> BenchmarkHandler::Create(absl::string_view principal,
                                                          const v1::CreateJobRequest& request) {
  if (auto status = CheckRequestId(request.request_id()); !status.ok()) return status;
  auto spec = NormalizeSpec(request.spec(), context_);
  if (!spec.ok()) return spec.status();
  const std::string digest = SpecDigest(*spec);
  if (!request.validate_only()) {
    // Before anything that may have changed since: a repeated request finds its job on a full or draining server too.
    auto found = store_->FindRequest(principal, request.request_id(), digest);
    if (!found.ok()) return found.status();
    if (found->has_value()) return **found;
    if (runner_->draining()) return Draining();
  }
  if (auto status = ResolveTarget(context_, &*spec); !status.ok()) return status;

  v1::BenchmarkJob job;
  job.set_spec_digest(digest);
  job.set_rounds_planned(*spec->procedure().looks().rbegin());
  *job.mutable_spec() = *std::move(spec);
  if (request.validate_only()) {
    const auto device = std::find_if(context_.devices.begin(), context_.devices.end(), [&](const v1::DeviceInfo& info) {
      return info.name() == job.spec().target().device();
    });
    const auto noise = FindNoise(job.spec(), *device, store_);  // ResolveTarget chose one of them.
    if (!noise.ok()) return noise.status();
    *job.mutable_plan() = MakePlan(job.spec(), {}, *noise);
    return job;
  }
  if (job.spec().seed() == 0) job.mutable_spec()->set_seed(DrawSeed());
  job.set_name(absl::StrCat("jobs/", RandomHex128()));
  job.set_request_id(request.request_id());
  job.set_state(v1::BenchmarkJob::QUEUED);
  job.set_create_time_unix_ms(absl::ToUnixMillis(absl::Now()));
  const int max_queued =
      context_.limits.max_queued_jobs() > 0 ? context_.limits.max_queued_jobs() : kDefaultMaxQueuedJobs;
  return store_->Create(principal, job, digest, max_queued);
}

absl::StatusOr<v1::BenchmarkJob> BenchmarkHandler::Get(absl::string_view principal, const v1::GetJobRequest& request) {
  auto stored = OwnJob(principal, request.name());
  if (!stored.ok()) return stored.status();
  return std::move(stored->job);
}

absl::StatusOr<v1::ListJobsResponse> BenchmarkHandler::List(absl::string_view principal,
                                                            const v1::ListJobsRequest& request) {
  if (request.page_size() < 0 || request.page_size() > kMaxPageSize) {
    return InvalidField("page_size", absl::StrCat(request.page_size()),
                        absl::StrCat("in [1, ", kMaxPageSize, "], or 0 for ", kDefaultPageSize));
  }
  std::int64_t before = 0;
  if (!request.page_token().empty()) {
    const auto token = ParseInt64(request.page_token());
    if (!token.has_value() || *token < 1) {
      return InvalidField("page_token", request.page_token(), "what the call before this one returned, or empty");
    }
    before = *token;
  }
  const int page_size = request.page_size() == 0 ? kDefaultPageSize : request.page_size();
  // One more tells whether there is a next page.
  auto jobs = store_->List(principal, before, page_size + 1, request.spec_digest());
  if (!jobs.ok()) return jobs.status();
  v1::ListJobsResponse response;
  for (auto& [position, job] : *jobs) {
    if (response.jobs_size() == page_size) {
      response.set_next_page_token(absl::StrCat(before));
      break;
    }
    before = position;
    job.clear_plan();
    *response.add_jobs() = std::move(job);
  }
  return response;
}

absl::Status BenchmarkHandler::Watch(absl::string_view principal, const v1::WatchJobRequest& request,
                                     const std::function<bool(const v1::JobEvent&)>& send, const Check& check) {
  if (request.after_sequence() < 0) {
    return InvalidField("after_sequence", absl::StrCat(request.after_sequence()), "at least 0");
  }
  std::int64_t sequence = request.after_sequence();
  std::uint64_t progress_seen = 0;
  while (true) {
    const std::uint64_t seen = store_->commits();
    // Before the events: a job that has ended gets none after those that are read next.
    const auto stored = OwnJob(principal, request.name());
    if (!stored.ok()) return stored.status();
    auto events = store_->EventsAfter(request.name(), sequence, kEventsAtOnce);
    if (!events.ok()) return events.status();
    for (const v1::JobEvent& event : *events) {
      if (!send(event)) return absl::CancelledError("the watcher has gone");
      sequence = event.sequence();
    }
    if (auto status = check(); !status.ok()) return status;
    if (!events->empty()) continue;  // There may be more.
    if (HasEnded(stored->job.state())) return absl::OkStatus();
    if (runner_->draining()) return Draining();
    if (request.progress()) {
      if (!SendProgress(request.name(), send, &progress_seen)) return absl::CancelledError("the watcher has gone");
    }
    store_->WaitForCommit(seen, std::chrono::steady_clock::now() + kCheckInterval);
  }
}

bool BenchmarkHandler::SendProgress(absl::string_view name, const std::function<bool(const v1::JobEvent&)>& send,
                                    std::uint64_t* seen) const {
  const auto present = runner_->ProgressOf(name);
  if (!present.has_value() || present->version == *seen) return true;
  *seen = present->version;
  v1::JobEvent event;
  event.set_time_unix_ms(absl::ToUnixMillis(absl::Now()));
  *event.mutable_progress() = present->progress;
  return send(event);
}

absl::StatusOr<v1::BenchmarkJob> BenchmarkHandler::Cancel(absl::string_view principal,
                                                          const v1::CancelJobRequest& request) {
  if (auto stored = OwnJob(principal, request.name()); !stored.ok()) return stored.status();
  auto job = store_->Cancel(request.name());
  if (job.ok()) runner_->Interrupt(request.name());
  return job;
}

absl::Status BenchmarkHandler::GetReport(absl::string_view principal, const v1::GetReportRequest& request,
                                         const std::function<bool(const v1::GetReportResponse&)>& send) {
  for (const std::string& file : request.file_names()) {
    if (std::find(std::begin(kReportFiles), std::end(kReportFiles), file) == std::end(kReportFiles)) {
      return InvalidField("file_names", PrintableText(file, 128),
                          "report.json, samples.csv, diagnostics.csv or excluded.csv");
    }
  }
  auto stored = OwnJob(principal, request.name());
  if (!stored.ok()) return stored.status();
  if (!HasEnded(stored->job.state())) {
    return absl::FailedPreconditionError("the job has not ended yet: watch it, then ask again");
  }
  auto record = LoadJobRecord(store_, std::move(stored->job));
  if (!record.ok()) return record.status();
  const auto files = BuildReport(*record);
  if (!files.ok()) return files.status();
  const auto& wanted = request.file_names();
  for (const ReportFile& file : *files) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), file.name) == wanted.end()) continue;
    if (!SendFile(file, send)) return absl::CancelledError("the caller has gone");
  }
  return absl::OkStatus();
}

}  // namespace keval::server
