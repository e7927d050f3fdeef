#include "bench/flight_peer.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/number.h"
#include "base/text.h"

namespace keval::bench {

absl::StatusOr<std::unique_ptr<FlightPeer>> FlightPeer::Start(const std::string& python, const std::string& script) {
  std::array<int, 2> in = {};
  std::array<int, 2> out = {};
  if (pipe2(in.data(), O_CLOEXEC) != 0 || pipe2(out.data(), O_CLOEXEC) != 0) {
    return absl::UnavailableError("no pipe for the Flight program");
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], 0);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  std::string program = python;
  std::string argument = script;
  std::array<char*, 3> command = {program.data(), argument.data(), nullptr};
  pid_t pid = -1;
  const int error = posix_spawnp(&pid, program.c_str(), &actions, nullptr, command.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(in[0]);
  close(out[1]);
  if (error != 0) {
    close(in[1]);
    close(out[0]);
    return absl::UnavailableError(absl::StrCat(python, " could not be started"));
  }
  auto peer = absl::WrapUnique(new FlightPeer(pid, fdopen(in[1], "w"), fdopen(out[0], "r")));
  const auto line = peer->ReadLine();
  if (!line.ok()) return line.status();
  absl::string_view rest = *line;
  if (!absl::ConsumePrefix(&rest, "ready ")) return absl::UnavailableError(PrintableText(*line, 256));
  peer->version_ = PrintableText(rest, 64);
  return peer;
}

FlightPeer::~FlightPeer() {
  std::fclose(to_);
  std::fclose(from_);
  waitpid(pid_, nullptr, 0);
}

absl::StatusOr<std::string> FlightPeer::ReadLine() {
  std::string line;
  for (int c = std::fgetc(from_); c != '\n'; c = std::fgetc(from_)) {
    if (c == EOF) return absl::UnavailableError("the Flight program ended");
    line.push_back(static_cast<char>(c));
  }
  return line;
}

absl::StatusOr<absl::Duration> FlightPeer::Transfer(const char* direction, std::size_t bytes) {
  const std::string command = absl::StrCat(direction, " ", bytes, "\n");
  if (std::fwrite(command.data(), 1, command.size(), to_) != command.size() || std::fflush(to_) != 0) {
    return absl::UnavailableError("the Flight program takes no commands");
  }
  const auto line = ReadLine();
  if (!line.ok()) return line.status();
  const auto seconds = ParseDouble(*line);
  if (!seconds) return absl::UnavailableError(absl::StrCat("Flight: ", PrintableText(*line, 256)));
  return absl::Seconds(*seconds);
}

}  // namespace keval::bench
