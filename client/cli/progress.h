// A job's events as they come: to people on stderr, to scripts (--events) on stdout.
#ifndef KEVAL_CLIENT_CLI_PROGRESS_H_
#define KEVAL_CLIENT_CLI_PROGRESS_H_

#include <string>

#include "absl/status/status.h"
#include "client/cli/progress_line.h"
#include "client/cli/session.h"
#include "keval/v1/benchmark.pb.h"

namespace keval::cli {

// One event as a line for a person, without a line end.
std::string EventText(const v1::JobEvent& event);

// Whether stderr can show a line that is drawn over.
bool IsTerminal();

// In a log a line for each event that is kept. On a terminal state changes, looks and losses stay, and under them one
// line says where the job stands, drawn over as it goes on; it is erased when the object goes. Not thread-safe.
class Progress {
 public:
  Progress(const Session& session, bool terminal);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Show(const v1::JobEvent& event);
  // The first error of writing an event to stdout.
  const absl::Status& status() const { return status_; }

 private:
  void Erase();
  void DrawLine();

  const Session& session_;
  const bool terminal_;
  ProgressLine line_;
  bool line_open_ = false;  // The terminal's line may be written over.
  absl::Status status_;
};

}  // namespace keval::cli

#endif  // KEVAL_CLIENT_CLI_PROGRESS_H_
