#include "server/job_rows.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace keval::server {

std::optional<std::int64_t> PositionOf(SQLite::Database* database, absl::string_view name, int* state) {
  SQLite::Statement query(*database, "SELECT position, state FROM jobs WHERE name = ?");
  query.bind(1, std::string(name));
  if (!query.executeStep()) return std::nullopt;
  *state = query.getColumn(1).getInt();
  return query.getColumn(0).getInt64();
}

void AppendEvent(SQLite::Database* database, std::int64_t position, v1::JobEvent event) {
  SQLite::Statement last(*database, "SELECT COALESCE(MAX(sequence), 0) FROM events WHERE job = ?");
  last.bind(1, position);
  last.executeStep();
  event.set_sequence(last.getColumn(0).getInt64() + 1);
  if (event.time_unix_ms() == 0) event.set_time_unix_ms(absl::ToUnixMillis(absl::Now()));
  const std::string bytes = event.SerializeAsString();
  SQLite::Statement insert(*database, "INSERT INTO events (job, sequence, event) VALUES (?, ?, ?)");
  insert.bind(1, position);
  insert.bind(2, static_cast<std::int64_t>(event.sequence()));
  insert.bind(3, bytes.data(), static_cast<int>(bytes.size()));
  insert.exec();
}

void UpdateJob(SQLite::Database* database, std::int64_t position, const v1::BenchmarkJob& job) {
  const std::string bytes = job.SerializeAsString();
  SQLite::Statement update(*database, "UPDATE jobs SET state = ?, job = ? WHERE position = ?");
  update.bind(1, static_cast<int>(job.state()));
  update.bind(2, bytes.data(), static_cast<int>(bytes.size()));
  update.bind(3, position);
  update.exec();
}

void InsertRound(SQLite::Database* database, std::int64_t position, const StoredRound& round) {
  SQLite::Statement insert(*database, "INSERT INTO rounds (job, round, samples, evidence) VALUES (?, ?, ?, ?)");
  insert.bind(1, position);
  insert.bind(2, round.round);
  insert.bind(3, round.samples);
  insert.bind(4, round.evidence);
  insert.exec();
}

void InsertLoss(SQLite::Database* database, std::int64_t position, const StoredLoss& loss) {
  SQLite::Statement insert(*database,
                           "INSERT INTO losses (job, phase, round, cause, reason, detail, samples) "
                           "VALUES (?, ?, ?, ?, ?, ?, ?)");
  insert.bind(1, position);
  insert.bind(2, loss.phase);
  insert.bind(3, loss.round);
  insert.bind(4, loss.cause);
  insert.bind(5, loss.reason);
  insert.bind(6, loss.detail);
  insert.bind(7, loss.samples);
  insert.exec();
}

void DeleteJob(SQLite::Database* database, std::int64_t position) {
  for (const char* table : {"events", "rounds", "losses", "documents"}) {
    SQLite::Statement rows(*database, absl::StrCat("DELETE FROM ", table, " WHERE job = ?"));
    rows.bind(1, position);
    rows.exec();
  }
  SQLite::Statement job(*database, "DELETE FROM jobs WHERE position = ?");
  job.bind(1, position);
  job.exec();
}

}  // namespace keval::server
