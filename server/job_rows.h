// Writing the rows of one job: SQL without locks, transactions and error handling, which are JobStore's.
#ifndef KEVAL_SERVER_JOB_ROWS_H_
#define KEVAL_SERVER_JOB_ROWS_H_

#include <SQLiteCpp/SQLiteCpp.h>

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "keval/v1/benchmark.pb.h"
#include "server/job_store.h"

namespace keval::server {

// All may throw SQLite's exceptions. `position` is the job's row.

// The row of the job of that name and its state, or nullopt.
std::optional<std::int64_t> PositionOf(SQLite::Database* database, absl::string_view name, int* state);

// Gives the event its number, and its time where it has none.
void AppendEvent(SQLite::Database* database, std::int64_t position, v1::JobEvent event);
void UpdateJob(SQLite::Database* database, std::int64_t position, const v1::BenchmarkJob& job);
void InsertRound(SQLite::Database* database, std::int64_t position, const StoredRound& round);
void InsertLoss(SQLite::Database* database, std::int64_t position, const StoredLoss& loss);
// With everything that refers to it.
void DeleteJob(SQLite::Database* database, std::int64_t position);

}  // namespace keval::server

#endif  // KEVAL_SERVER_JOB_ROWS_H_
