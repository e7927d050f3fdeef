#include "server/job_schema.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "keval/v1/benchmark.pb.h"

namespace keval::server {
namespace {

constexpr int kSchemaVersion = 1;
constexpr std::int32_t kApplicationId = 0x6B65766A;  // "kevj": the file is ours.

constexpr char kSchema[] = R"sql(
CREATE TABLE jobs (
  position INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL UNIQUE,
  principal TEXT NOT NULL,
  request_id TEXT,
  request_digest TEXT NOT NULL,
  device TEXT NOT NULL,
  state INTEGER NOT NULL,
  job BLOB NOT NULL,
  idle_restarts INTEGER NOT NULL DEFAULT 0,
  stopped_clean INTEGER NOT NULL DEFAULT 0,
  UNIQUE (principal, request_id));
CREATE INDEX jobs_by_state ON jobs (state, device, position);
CREATE INDEX jobs_by_principal ON jobs (principal, position);
CREATE TABLE events (
  job INTEGER NOT NULL REFERENCES jobs (position),
  sequence INTEGER NOT NULL,
  event BLOB NOT NULL,
  PRIMARY KEY (job, sequence)) WITHOUT ROWID;
CREATE TABLE rounds (
  job INTEGER NOT NULL REFERENCES jobs (position),
  round INTEGER NOT NULL,
  samples TEXT NOT NULL,
  evidence TEXT NOT NULL,
  PRIMARY KEY (job, round));
CREATE TABLE losses (
  ordinal INTEGER PRIMARY KEY AUTOINCREMENT,
  job INTEGER NOT NULL REFERENCES jobs (position),
  phase TEXT NOT NULL,
  round INTEGER NOT NULL,
  cause TEXT NOT NULL,
  reason TEXT NOT NULL,
  detail TEXT NOT NULL,
  samples TEXT NOT NULL);
CREATE INDEX losses_by_job ON losses (job, ordinal);
CREATE TABLE documents (
  job INTEGER NOT NULL REFERENCES jobs (position),
  name TEXT NOT NULL,
  text TEXT NOT NULL,
  PRIMARY KEY (job, name));
CREATE TABLE calibration (
  device_key TEXT NOT NULL,
  mean REAL NOT NULL);
CREATE INDEX calibration_by_device ON calibration (device_key);
)sql";

}  // namespace

absl::Status CreatePrivateFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return absl::UnavailableError(absl::StrCat("can't open ", path, ": ", std::strerror(errno)));
  close(fd);
  return absl::OkStatus();
}

absl::StatusOr<int> LockDataDir(const std::string& data_dir) {
  // ~/.local/state may not be there yet.
  std::error_code ignored;  // mkdir below says what is wrong.
  std::filesystem::create_directories(std::filesystem::path(data_dir).lexically_normal().parent_path(), ignored);
  if (mkdir(data_dir.c_str(), 0700) != 0 && errno != EEXIST) {
    return absl::UnavailableError(absl::StrCat("can't create data directory ", data_dir, ": ", std::strerror(errno)));
  }
  const std::string path = absl::StrCat(data_dir, "/LOCK");
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return absl::UnavailableError(absl::StrCat("can't open ", path, ": ", std::strerror(errno)));
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  const int error = errno;
  close(fd);
  if (error == EWOULDBLOCK) {
    return absl::FailedPreconditionError(absl::StrCat("data directory ", data_dir, " is used by another server"));
  }
  return absl::UnavailableError(absl::StrCat("can't lock ", path, ": ", std::strerror(error)));
}

absl::Status PrepareSchema(const std::string& path, SQLite::Database* database) {
  database->exec("PRAGMA journal_mode = WAL");
  database->exec("PRAGMA synchronous = FULL");
  database->exec("PRAGMA foreign_keys = ON");
  database->setBusyTimeout(2000);
  const int version = database->execAndGet("PRAGMA user_version").getInt();
  const int application = database->execAndGet("PRAGMA application_id").getInt();
  const int tables = database->execAndGet("SELECT COUNT(*) FROM sqlite_master").getInt();
  if (version == 0 && application == 0 && tables == 0) {
    SQLite::Transaction transaction(*database, SQLite::TransactionBehavior::IMMEDIATE);
    database->exec(kSchema);
    database->exec(absl::StrCat("PRAGMA application_id = ", kApplicationId));
    database->exec(absl::StrCat("PRAGMA user_version = ", kSchemaVersion));
    transaction.commit();
    return absl::OkStatus();
  }
  if (application != kApplicationId) {
    return absl::DataLossError(absl::StrCat(path, " is no job store of keval's; name another --data_dir"));
  }
  if (version > kSchemaVersion) {
    return absl::FailedPreconditionError(absl::StrCat(path, " has schema version ", version,
                                                      ", this server reads up to ", kSchemaVersion,
                                                      "; start the newer server again or name another --data_dir"));
  }
  // Every job must be readable now, not at some request later.
  SQLite::Statement query(*database, "SELECT job FROM jobs");
  while (query.executeStep()) {
    const SQLite::Column blob = query.getColumn(0);
    if (!v1::BenchmarkJob().ParseFromArray(blob.getBlob(), blob.getBytes())) {
      return absl::DataLossError(absl::StrCat(path, " is damaged: a job can't be read"));
    }
  }
  return absl::OkStatus();
}

}  // namespace keval::server
