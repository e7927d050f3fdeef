// A job's events as they come: to people on stderr, to scripts (--events) on stdout.
#ifndef KEVAL_CLIENT_CLI_PROGRESS_H_
#define KEVAL_CLIENT_CLI_PROGRESS_H_

#include <string>

#include "absl/status/status.h"
#include "client/cli/session.h"
#include "keval/v1/benchmark.pb.h"

namespace keval::cli {

// One event as a line for a person, without a line end.
std::string EventText(const v1::JobEvent& event);

// Shows each event; on a terminal a finished round takes the place of the one before it. Ends its last line when it
// goes. Not thread-safe.
class Progress {
 public:
  explicit Progress(const Session& session);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Show(const v1::JobEvent& event);
  // The first error of writing an event to stdout.
  const absl::Status& status() const { return status_; }

 private:
  const Session& session_;
  const bool terminal_;
  bool line_open_ = false;  // The terminal's line may be written over.
  absl::Status status_;
};

}  // namespace keval::cli

#endif  // KEVAL_CLIENT_CLI_PROGRESS_H_
