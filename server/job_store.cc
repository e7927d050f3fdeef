#include "server/job_store.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <sqlite3.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/field_error.h"
#include "base/text.h"
#include "proto/job_state.h"
#include "server/job_rows.h"
#include "server/job_schema.h"

namespace keval::server {
namespace {

constexpr std::int64_t kQueueRetryMs = 5000;
constexpr std::int64_t kStoreRetryMs = 1000;

std::int64_t NowMs() { return absl::ToUnixMillis(absl::Now()); }

absl::Status CantWrite() {
  return WithRetryDelayMs(absl::UnavailableError("job store can't be written"), kStoreRetryMs);
}
absl::Status CantRead() { return WithRetryDelayMs(absl::UnavailableError("job store can't be read"), kStoreRetryMs); }

absl::Status NoSuchJob() { return absl::NotFoundError("no such job"); }

absl::Status RequestIdReused(absl::string_view request_id) {
  const std::string shown = PrintableText(request_id, 128);
  return WithField(absl::InvalidArgumentError(absl::StrCat("request_id: ", shown, " was used with another spec")),
                   {"request_id", shown, "new, or used with the same spec"});
}

// A BLOB of a message of ours; nullopt where it doesn't parse.
template <typename Message>
std::optional<Message> ParseBlob(const SQLite::Column& column) {
  Message message;
  if (!message.ParseFromArray(column.getBlob(), column.getBytes())) return std::nullopt;
  return message;
}

std::string TextOf(const SQLite::Column& column) { return column.getString(); }

// Runs `body`, which may throw SQLite's exceptions, as one write transaction.
template <typename Body>
absl::Status Write(SQLite::Database* database, Body body) {
  try {
    SQLite::Transaction transaction(*database, SQLite::TransactionBehavior::IMMEDIATE);
    if (absl::Status status = body(); !status.ok()) return status;  // Rolled back.
    transaction.commit();
    return absl::OkStatus();
  } catch (const SQLite::Exception&) {
    return CantWrite();
  }
}

// Runs `body`, which may throw SQLite's exceptions, over a value to fill in.
template <typename Value, typename Body>
absl::StatusOr<Value> Read(Body body) {
  try {
    Value value{};
    if (absl::Status status = body(&value); !status.ok()) return status;
    return value;
  } catch (const SQLite::Exception&) {
    return CantRead();
  }
}

// `query` selects principal, job, idle_restarts, stopped_clean.
absl::StatusOr<StoredJob> StoredJobFrom(SQLite::Statement& query) {
  auto job = ParseBlob<v1::BenchmarkJob>(query.getColumn(1));
  if (!job.has_value()) return CantRead();
  return StoredJob{TextOf(query.getColumn(0)), *std::move(job), query.getColumn(2).getInt(),
                   query.getColumn(3).getInt() != 0};
}

}  // namespace

absl::StatusOr<std::unique_ptr<JobStore>> JobStore::Open(const std::string& data_dir) {
  absl::StatusOr<int> lock = LockDataDir(data_dir);
  if (!lock.ok()) return lock.status();
  const std::string path = absl::StrCat(data_dir, "/jobs.db");
  absl::Status status = CreatePrivateFile(path);
  if (!status.ok()) {
    close(*lock);
    return status;
  }
  try {
    auto database = std::make_unique<SQLite::Database>(path, SQLite::OPEN_READWRITE);
    status = PrepareSchema(path, database.get());
    if (status.ok()) return std::unique_ptr<JobStore>(new JobStore(*lock, std::move(database)));
  } catch (const SQLite::Exception& error) {
    const int code = error.getErrorCode();
    status = code == SQLITE_CORRUPT || code == SQLITE_NOTADB
                 ? absl::DataLossError(absl::StrCat(path, " is damaged (", error.what(),
                                                    "); restore it, or move it away to begin without jobs"))
                 : absl::UnavailableError(absl::StrCat("can't open ", path, ": ", error.what()));
  }
  close(*lock);
  return status;
}

JobStore::JobStore(int lock_fd, std::unique_ptr<SQLite::Database> database)
    : lock_fd_(lock_fd), database_(std::move(database)) {}

JobStore::~JobStore() { close(lock_fd_); }

void JobStore::CountCommit() {
  ++commits_;
  committed_.SignalAll();
}

absl::StatusOr<std::optional<v1::BenchmarkJob>> JobStore::FindRequestLocked(absl::string_view principal,
                                                                            absl::string_view request_id,
                                                                            absl::string_view request_digest) {
  if (request_id.empty()) return std::optional<v1::BenchmarkJob>();
  SQLite::Statement query(*database_, "SELECT request_digest, job FROM jobs WHERE principal = ? AND request_id = ?");
  query.bind(1, std::string(principal));
  query.bind(2, std::string(request_id));
  if (!query.executeStep()) return std::optional<v1::BenchmarkJob>();
  if (TextOf(query.getColumn(0)) != std::string(request_digest)) return RequestIdReused(request_id);
  auto job = ParseBlob<v1::BenchmarkJob>(query.getColumn(1));
  if (!job.has_value()) return CantRead();
  return job;
}

absl::StatusOr<std::optional<v1::BenchmarkJob>> JobStore::FindRequest(absl::string_view principal,
                                                                      absl::string_view request_id,
                                                                      absl::string_view request_digest) {
  using Found = std::optional<v1::BenchmarkJob>;
  MutexLock lock(&mutex_);
  return Read<Found>([&](Found* found) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::Status {
    absl::StatusOr<Found> stored = FindRequestLocked(principal, request_id, request_digest);
    if (!stored.ok()) return stored.status();
    *found = *std::move(stored);
    return absl::OkStatus();
  });
}

absl::StatusOr<v1::BenchmarkJob> JobStore::Create(absl::string_view principal, const v1::BenchmarkJob& job,
                                                  absl::string_view request_digest, int max_queued) {
  MutexLock lock(&mutex_);
  v1::BenchmarkJob result = job;
  bool added = false;
  const absl::Status status = Write(database_.get(), [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::Status {
    const auto found = FindRequestLocked(principal, job.request_id(), request_digest);
    if (!found.ok()) return found.status();
    if (found->has_value()) {
      result = **found;
      return absl::OkStatus();
    }
    SQLite::Statement count(*database_, "SELECT COUNT(*) FROM jobs WHERE state = ?");
    count.bind(1, static_cast<int>(v1::BenchmarkJob::QUEUED));
    count.executeStep();
    if (count.getColumn(0).getInt() >= max_queued) {
      return WithRetryDelayMs(
          absl::ResourceExhaustedError(absl::StrCat("too many jobs are queued: the limit is ", max_queued)),
          kQueueRetryMs);
    }
    const std::string bytes = job.SerializeAsString();
    SQLite::Statement insert(*database_,
                             "INSERT INTO jobs (name, principal, request_id, request_digest, device, state, job) "
                             "VALUES (?, ?, ?, ?, ?, ?, ?)");
    insert.bind(1, job.name());
    insert.bind(2, std::string(principal));
    if (!job.request_id().empty()) insert.bind(3, job.request_id());  // NULL otherwise: never the same job twice.
    insert.bind(4, std::string(request_digest));
    insert.bind(5, job.spec().target().device());
    insert.bind(6, static_cast<int>(job.state()));
    insert.bind(7, bytes.data(), static_cast<int>(bytes.size()));
    insert.exec();
    v1::JobEvent event;
    *event.mutable_job() = job;
    AppendEvent(database_.get(), database_->getLastInsertRowid(), event);
    added = true;
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  if (added) CountCommit();
  return result;
}

absl::StatusOr<StoredJob> JobStore::Get(absl::string_view name) {
  MutexLock lock(&mutex_);
  return Read<StoredJob>([&](StoredJob* job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::Status {
    SQLite::Statement query(*database_, "SELECT principal, job, idle_restarts, stopped_clean FROM jobs WHERE name = ?");
    query.bind(1, std::string(name));
    if (!query.executeStep()) return NoSuchJob();
    absl::StatusOr<StoredJob> stored = StoredJobFrom(query);
    if (!stored.ok()) return stored.status();
    *job = *std::move(stored);
    return absl::OkStatus();
  });
}

absl::StatusOr<std::vector<std::pair<std::int64_t, v1::BenchmarkJob>>> JobStore::List(
    absl::string_view principal, std::int64_t before, int limit, absl::string_view request_digest) {
  MutexLock lock(&mutex_);
  return Read<std::vector<std::pair<std::int64_t, v1::BenchmarkJob>>>(
      [&](std::vector<std::pair<std::int64_t, v1::BenchmarkJob>>* jobs)
          ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::Status {
            SQLite::Statement query(*database_,
                                    "SELECT position, job FROM jobs WHERE principal = ?1 AND (?2 = 0 OR position < ?2) "
                                    "AND (?4 = '' OR request_digest = ?4) ORDER BY position DESC LIMIT ?3");
            query.bind(1, std::string(principal));
            query.bind(2, before);
            query.bind(3, limit);
            query.bind(4, std::string(request_digest));
            while (query.executeStep()) {
              auto job = ParseBlob<v1::BenchmarkJob>(query.getColumn(1));
              if (!job.has_value()) return CantRead();
              jobs->emplace_back(query.getColumn(0).getInt64(), *std::move(job));
            }
            return absl::OkStatus();
          });
}

absl::StatusOr<std::optional<StoredJob>> JobStore::NextJob(absl::string_view device) {
  MutexLock lock(&mutex_);
  return Read<std::optional<StoredJob>>(
      [&](std::optional<StoredJob>* next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::Status {
        SQLite::Statement query(*database_,
                                "SELECT principal, job, idle_restarts, stopped_clean FROM jobs "
                                "WHERE device = ? AND state IN (?, ?) ORDER BY state DESC, position LIMIT 1");
        static_assert(v1::BenchmarkJob::RUNNING > v1::BenchmarkJob::QUEUED);  // What runs already comes first.
        query.bind(1, std::string(device));
        query.bind(2, static_cast<int>(v1::BenchmarkJob::RUNNING));
        query.bind(3, static_cast<int>(v1::BenchmarkJob::QUEUED));
        if (!query.executeStep()) return absl::OkStatus();
        auto job = StoredJobFrom(query);
        if (!job.ok()) return job.status();
        *next = *std::move(job);
        return absl::OkStatus();
      });
}

absl::StatusOr<std::vector<StoredJob>> JobStore::JobsInState(v1::BenchmarkJob::State state) {
  MutexLock lock(&mutex_);
  return Read<std::vector<StoredJob>>(
      [&](std::vector<StoredJob>* jobs) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::Status {
        SQLite::Statement query(*database_,
                                "SELECT principal, job, idle_restarts, stopped_clean FROM jobs WHERE state = ? "
                                "ORDER BY position");
        query.bind(1, static_cast<int>(state));
        while (query.executeStep()) {
          auto job = StoredJobFrom(query);
          if (!job.ok()) return job.status();
          jobs->push_back(*std::move(job));
        }
        return absl::OkStatus();
      });
}

absl::StatusOr<int> JobStore::CountInState(v1::BenchmarkJob::State state) {
  MutexLock lock(&mutex_);
  return Read<int>([&](int* count) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::Status {
    SQLite::Statement query(*database_, "SELECT COUNT(*) FROM jobs WHERE state = ?");
    query.bind(1, static_cast<int>(state));
    query.executeStep();
    *count = query.getColumn(0).getInt();
    return absl::OkStatus();
  });
}

absl::Status JobStore::Apply(const JobChange& change) {
  MutexLock lock(&mutex_);
  absl::Status status = Write(database_.get(), [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::Status {
    int state = 0;
    const auto position = PositionOf(database_.get(), change.job.name(), &state);
    if (!position.has_value()) return NoSuchJob();
    if (HasEnded(state)) return absl::FailedPreconditionError("the job has ended");
    UpdateJob(database_.get(), *position, change.job);
    SQLite::Statement counters(*database_,
                               "UPDATE jobs SET idle_restarts = COALESCE(?, idle_restarts), "
                               "stopped_clean = COALESCE(?, stopped_clean) WHERE position = ?");
    if (change.idle_restarts.has_value()) counters.bind(1, *change.idle_restarts);
    if (change.stopped_clean.has_value()) counters.bind(2, *change.stopped_clean ? 1 : 0);
    counters.bind(3, *position);
    counters.exec();
    if (change.round.has_value()) InsertRound(database_.get(), *position, *change.round);
    if (change.loss.has_value()) InsertLoss(database_.get(), *position, *change.loss);
    for (const auto& [name, text] : change.documents) {
      SQLite::Statement put(*database_, "INSERT OR REPLACE INTO documents (job, name, text) VALUES (?, ?, ?)");
      put.bind(1, *position);
      put.bind(2, name);
      put.bind(3, text);
      put.exec();
    }
    for (const CalibrationPoint& point : change.calibration) {
      SQLite::Statement put(*database_, "INSERT INTO calibration (device_key, mean) VALUES (?, ?)");
      put.bind(1, point.key);
      put.bind(2, point.mean);
      put.exec();
    }
    for (const v1::JobEvent& event : change.events) AppendEvent(database_.get(), *position, event);
    return absl::OkStatus();
  });
  if (status.ok()) CountCommit();
  return status;
}

absl::StatusOr<v1::BenchmarkJob> JobStore::Cancel(absl::string_view name) {
  MutexLock lock(&mutex_);
  v1::BenchmarkJob result;
  bool changed = false;
  const absl::Status status = Write(database_.get(), [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::Status {
    SQLite::Statement query(*database_, "SELECT position, job FROM jobs WHERE name = ?");
    query.bind(1, std::string(name));
    if (!query.executeStep()) return NoSuchJob();
    auto job = ParseBlob<v1::BenchmarkJob>(query.getColumn(1));
    if (!job.has_value()) return CantRead();
    result = *std::move(job);
    if (HasEnded(result.state())) return absl::OkStatus();
    result.set_state(v1::BenchmarkJob::CANCELLED);
    result.set_detail("cancelled by its owner");
    result.set_end_time_unix_ms(NowMs());
    const std::int64_t position = query.getColumn(0).getInt64();
    UpdateJob(database_.get(), position, result);
    v1::JobEvent event;
    *event.mutable_job() = result;
    AppendEvent(database_.get(), position, event);
    changed = true;
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  if (changed) CountCommit();
  return result;
}

absl::StatusOr<std::vector<std::string>> JobStore::ExpiredJobs(std::int64_t ended_before_ms, std::int64_t max_jobs) {
  MutexLock lock(&mutex_);
  return Read<std::vector<std::string>>([&](std::vector<std::string>* names) ABSL_EXCLUSIVE_LOCKS_REQUIRED(
                                            mutex_) -> absl::Status {
    std::int64_t excess = max_jobs > 0 ? database_->execAndGet("SELECT COUNT(*) FROM jobs").getInt64() - max_jobs : 0;
    SQLite::Statement query(*database_, "SELECT job FROM jobs WHERE state IN (?, ?) ORDER BY position");
    query.bind(1, static_cast<int>(v1::BenchmarkJob::DONE));
    query.bind(2, static_cast<int>(v1::BenchmarkJob::CANCELLED));
    while (query.executeStep()) {
      const auto job = ParseBlob<v1::BenchmarkJob>(query.getColumn(0));
      if (!job.has_value()) return CantRead();
      if (excess <= 0 && job->end_time_unix_ms() >= ended_before_ms) continue;
      --excess;
      names->push_back(job->name());
    }
    return absl::OkStatus();
  });
}

absl::Status JobStore::DeleteEnded(absl::Span<const std::string> names) {
  MutexLock lock(&mutex_);
  absl::Status status = Write(database_.get(), [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (const std::string& name : names) {
      int state = 0;
      const auto position = PositionOf(database_.get(), name, &state);
      if (position.has_value() && HasEnded(state)) DeleteJob(database_.get(), *position);
    }
    return absl::OkStatus();
  });
  if (status.ok()) CountCommit();  // Whoever watches one of them finds it gone.
  return status;
}

absl::StatusOr<std::vector<v1::JobEvent>> JobStore::EventsAfter(absl::string_view name, std::int64_t sequence,
                                                                int limit) {
  MutexLock lock(&mutex_);
  return Read<std::vector<v1::JobEvent>>(
      [&](std::vector<v1::JobEvent>* events) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::Status {
        SQLite::Statement query(*database_,
                                "SELECT event FROM events JOIN jobs ON events.job = jobs.position "
                                "WHERE name = ? AND sequence > ? ORDER BY sequence LIMIT ?");
        query.bind(1, std::string(name));
        query.bind(2, sequence);
        query.bind(3, limit);
        while (query.executeStep()) {
          auto event = ParseBlob<v1::JobEvent>(query.getColumn(0));
          if (!event.has_value()) return CantRead();
          events->push_back(*std::move(event));
        }
        return absl::OkStatus();
      });
}

absl::StatusOr<std::vector<StoredRound>> JobStore::Rounds(absl::string_view name) {
  MutexLock lock(&mutex_);
  return Read<std::vector<StoredRound>>(
      [&](std::vector<StoredRound>* rounds) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::Status {
        SQLite::Statement query(*database_,
                                "SELECT round, samples, evidence FROM rounds JOIN jobs ON rounds.job = jobs.position "
                                "WHERE name = ? ORDER BY round");
        query.bind(1, std::string(name));
        while (query.executeStep()) {
          rounds->push_back({query.getColumn(0).getInt(), TextOf(query.getColumn(1)), TextOf(query.getColumn(2))});
        }
        return absl::OkStatus();
      });
}

absl::StatusOr<std::vector<StoredLoss>> JobStore::Losses(absl::string_view name) {
  MutexLock lock(&mutex_);
  return Read<std::vector<StoredLoss>>(
      [&](std::vector<StoredLoss>* losses) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::Status {
        SQLite::Statement query(*database_,
                                "SELECT phase, round, cause, reason, detail, samples FROM losses "
                                "JOIN jobs ON losses.job = jobs.position WHERE name = ? ORDER BY ordinal");
        query.bind(1, std::string(name));
        while (query.executeStep()) {
          losses->push_back({TextOf(query.getColumn(0)), query.getColumn(1).getInt(), TextOf(query.getColumn(2)),
                             TextOf(query.getColumn(3)), TextOf(query.getColumn(4)), TextOf(query.getColumn(5))});
        }
        return absl::OkStatus();
      });
}

absl::StatusOr<std::string> JobStore::Document(absl::string_view name, absl::string_view document) {
  MutexLock lock(&mutex_);
  return Read<std::string>([&](std::string* text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::Status {
    SQLite::Statement query(*database_,
                            "SELECT text FROM documents JOIN jobs ON documents.job = jobs.position "
                            "WHERE jobs.name = ? AND documents.name = ?");
    query.bind(1, std::string(name));
    query.bind(2, std::string(document));
    if (query.executeStep()) *text = TextOf(query.getColumn(0));
    return absl::OkStatus();
  });
}

absl::StatusOr<std::vector<double>> JobStore::Calibration(absl::string_view key) {
  MutexLock lock(&mutex_);
  return Read<std::vector<double>>(
      [&](std::vector<double>* means) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::Status {
        SQLite::Statement query(*database_, "SELECT mean FROM calibration WHERE device_key = ?");
        query.bind(1, std::string(key));
        while (query.executeStep()) means->push_back(query.getColumn(0).getDouble());
        return absl::OkStatus();
      });
}

std::uint64_t JobStore::commits() {
  MutexLock lock(&mutex_);
  return commits_;
}

void JobStore::WaitForCommit(std::uint64_t seen, std::chrono::steady_clock::time_point deadline) {
  MutexLock lock(&mutex_);
  while (commits_ <= seen) {
    if (!committed_.WaitUntil(&mutex_, deadline)) return;
  }
}

absl::Status JobStore::LimitPagesForTest(int pages) {
  MutexLock lock(&mutex_);
  return Write(database_.get(), [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    // SQLite takes no limit below the file's present size: then nothing may be added at all. Its default stands for 0.
    constexpr std::int64_t kNoLimit = 1073741823;
    database_->execAndGet(absl::StrCat("PRAGMA max_page_count = ", pages == 0 ? kNoLimit : pages));
    return absl::OkStatus();
  });
}

}  // namespace keval::server
