// Arrow Flight, through a Python program that holds both its server and its client.
#ifndef KEVAL_BENCH_FLIGHT_PEER_H_
#define KEVAL_BENCH_FLIGHT_PEER_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace keval::bench {

// Not thread-safe.
class FlightPeer {
 public:
  // UNAVAILABLE with the reason where `python` has no pyarrow.
  static absl::StatusOr<std::unique_ptr<FlightPeer>> Start(const std::string& python, const std::string& script);
  ~FlightPeer();
  FlightPeer(const FlightPeer&) = delete;
  FlightPeer& operator=(const FlightPeer&) = delete;

  // Of one transfer of `bytes`, timed by the program itself.
  absl::StatusOr<absl::Duration> Push(std::size_t bytes) { return Transfer("push", bytes); }
  absl::StatusOr<absl::Duration> Pull(std::size_t bytes) { return Transfer("pull", bytes); }
  const std::string& version() const { return version_; }

 private:
  FlightPeer(pid_t pid, std::FILE* to, std::FILE* from) : pid_(pid), to_(to), from_(from) {}
  absl::StatusOr<absl::Duration> Transfer(const char* direction, std::size_t bytes);
  absl::StatusOr<std::string> ReadLine();

  const pid_t pid_;
  std::FILE* const to_;
  std::FILE* const from_;
  std::string version_;
};

}  // namespace keval::bench

#endif  // KEVAL_BENCH_FLIGHT_PEER_H_
