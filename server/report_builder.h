// The files of a job's report, from what the store holds of it. The document is described in docs/report_format.md.
#ifndef KEVAL_SERVER_REPORT_BUILDER_H_
#define KEVAL_SERVER_REPORT_BUILDER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "keval/v1/benchmark.pb.h"
#include "server/job_store.h"

namespace keval::server {

// Everything that the store holds of a job that has ended. Texts are empty where the job never came so far.
struct JobRecord {
  v1::BenchmarkJob job;
  std::vector<StoredRound> rounds;
  std::vector<StoredLoss> losses;
  std::string environment;
  std::string environment_after_restart;
  std::string contract;
  std::string profile;
  std::string diagnostics;
  std::string diagnostics_csv;
};

absl::StatusOr<JobRecord> LoadJobRecord(JobStore* store, v1::BenchmarkJob job);

struct ReportFile {
  std::string name;
  std::string data;
};

// report.json, samples.csv, diagnostics.csv, excluded.csv, in this order; each is there, if only as a header. The same
// record gives the same bytes. DATA_LOSS where the record can't be read.
absl::StatusOr<std::vector<ReportFile>> BuildReport(const JobRecord& record);

}  // namespace keval::server

#endif  // KEVAL_SERVER_REPORT_BUILDER_H_
