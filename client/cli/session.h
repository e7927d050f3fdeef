// What every command shares: the global flags, the streams it writes to, and the connection.
#ifndef KEVAL_CLIENT_CLI_SESSION_H_
#define KEVAL_CLIENT_CLI_SESSION_H_

#include <functional>
#include <memory>
#include <string>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "keval/client.h"

namespace keval::cli {

// One for each run of the program. Not thread-safe but for `cancel`.
struct Session {
  // Global flags.
  ConnectionOptions connection;  // But for `notice`, which is Connect's.
  bool json = false;
  bool events = false;
  absl::Duration timeout = absl::InfiniteDuration();

  std::shared_ptr<CancelSource> cancel = std::make_shared<CancelSource>();

  // A client for `connection`; notices go to stderr.
  absl::StatusOr<Client> Connect() const;
  CallOptions Options() const { return {timeout, cancel}; }
};

// Writes to stdout, whole and flushed. Text from outside must have gone through PrintableText. INVALID_ARGUMENT where
// it can't be written (a full disk).
absl::Status PrintText(absl::string_view text);
// One document, every character beyond ASCII escaped: no name in it can steer a terminal. With --events it is one line,
// as the events before it are.
absl::Status PrintJson(const Session& session, const nlohmann::ordered_json& document);
// One line of JSON Lines.
absl::Status PrintEvent(const nlohmann::ordered_json& event);

// Reports `status` on stderr, as text or as {"code", "field", "message"}; returns its exit code.
int Complain(const absl::Status& status, bool json);

// run()'s exit code; what escapes from it as an exception is reported by Complain.
int Guarded(bool json, const std::function<int()>& run);

// Writes a line to stderr, made printable.
void Note(absl::string_view text);

}  // namespace keval::cli

#endif  // KEVAL_CLIENT_CLI_SESSION_H_
