// How the job store's directory is claimed and its file laid out.
#ifndef KEVAL_SERVER_JOB_SCHEMA_H_
#define KEVAL_SERVER_JOB_SCHEMA_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace SQLite {
class Database;
}

namespace keval::server {

// Creates `data_dir` (mode 0700) where it is missing and takes its lock, which lasts until the descriptor is closed or
// the process ends, however it ends. FAILED_PRECONDITION: somebody else holds it.
absl::StatusOr<int> LockDataDir(const std::string& data_dir);

// Creates `path` (mode 0600) where it is missing; SQLite's side files take its mode over.
absl::Status CreatePrivateFile(const std::string& path);

// Sets the connection up for durable writes and creates the tables in a new file. FAILED_PRECONDITION: the file's
// schema is newer; DATA_LOSS: the file isn't a job store, or a job in it can't be read. May throw SQLite::Exception.
absl::Status PrepareSchema(const std::string& path, SQLite::Database* database);

}  // namespace keval::server

#endif  // KEVAL_SERVER_JOB_SCHEMA_H_
