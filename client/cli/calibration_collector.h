// Collecting the rounds of a calibration into its file.
#ifndef KEVAL_CLIENT_CLI_CALIBRATION_COLLECTOR_H_
#define KEVAL_CLIENT_CLI_CALIBRATION_COLLECTOR_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cli/session.h"
#include "core/verdict/calibration_json.h"
#include "keval/client.h"
#include "keval/v1/benchmark.pb.h"

namespace keval::cli {

inline constexpr int kFewestJobRounds = 4;  // That a job can have.

struct CalibrationPlan {
  std::string file;
  std::map<double, int> wanted;  // Rounds by effect in ln units; 0: A/A.
  int rounds_per_job = 24;
  bool across_fingerprints = false;  // Goes on with a file of another device of the same model.
};

// Runs calibration jobs, one after the other, until the file holds what the plan wants: always of the effect that has
// the least of its share, so that all effects are spread over the same time. Not thread-safe; for one Run.
class CalibrationCollector {
 public:
  // `spec`: one primary and no guards; its looks and levels give way to the plan's.
  CalibrationCollector(const Session& session, const Client& client, CalibrationPlan plan, v1::BenchmarkSpec spec);

  // Each round is in the file, on disk, before the next one is waited for. A file that exists is gone on with:
  // FAILED_PRECONDITION where it holds rounds of another device or spec. A job that the file names, because whoever
  // collected was killed, is gone on with: what it did meanwhile is taken. CANCELLED where the session was cancelled
  // (the job is cancelled with it). Also the errors of the server, and of the file.
  absl::Status Run();

  const verdict::CalibrationFile& file() const { return file_; }

 private:
  absl::Status Open();
  absl::Status CheckResumable(const verdict::CalibrationFile& old) const;
  absl::Status Describe();
  // The effect to go on with; false where there is nothing left.
  bool NextEffect(double* effect, int* rounds) const;
  absl::Status CollectJob(double effect, int rounds);
  // Makes the job that file_.job describes, or finds it where it was made before (`resumed`), and takes its rounds.
  absl::Status TakeJob(bool resumed);
  // The job that ran by that name has ended, or must.
  absl::Status ForgetJob();
  absl::Status Keep(const v1::JobEvent& event, double effect);
  absl::Status Save() const;

  const Session& session_;
  const Client& client_;
  const CalibrationPlan plan_;
  v1::BenchmarkSpec spec_;
  nlohmann::json here_;  // Device and server, as `collected` has them.
  std::string series_;   // Of the primary; "ctl:" and this: of the control.
  verdict::CalibrationFile file_;
};

}  // namespace keval::cli

#endif  // KEVAL_CLIENT_CLI_CALIBRATION_COLLECTOR_H_
