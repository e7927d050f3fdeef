#include "client/cli/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/number.h"
#include "base/text.h"
#include "client/cli/proto_json.h"
#include "core/verdict/explanation.h"

namespace keval::cli {
namespace {

std::string JobText(const v1::BenchmarkJob& job) {
  std::string text = absl::StrCat(PrintableText(job.name()), " ", v1::BenchmarkJob::State_Name(job.state()));
  if (!job.verdict().empty()) absl::StrAppend(&text, ": ", PrintableText(job.verdict()));
  if (!job.reason().empty()) absl::StrAppend(&text, " (", PrintableText(job.reason()), ")");
  return text;
}

// "round 3 in 9.1 s  SERIES +0.74 % [+0.48 %, +1.00 %] …; look at 6": each value with its running interval.
std::string RoundText(const v1::RoundDone& round) {
  std::map<std::string, std::string> intervals;
  for (const auto& series : round.running()) intervals[series.series()] = IntervalText(series);
  std::string text = absl::StrCat("round ", round.round(), " in ", FixedText(round.seconds(), 1), " s");
  const std::map<std::string, double> sorted(round.differences().begin(), round.differences().end());
  for (const auto& [series, difference] : sorted) {
    absl::StrAppend(&text, "  ", PrintableText(series, 128), " ", verdict::GainPercentText(difference));
    if (const auto found = intervals.find(series); found != intervals.end()) absl::StrAppend(&text, " ", found->second);
  }
  if (round.next_look() > 0) absl::StrAppend(&text, "; look at ", round.next_look());
  return text;
}

std::string LookText(const v1::Look& look) {
  std::string text = absl::StrCat("look at ", look.rounds(), " rounds:");
  for (const auto& series : look.series()) {
    absl::StrAppend(&text, "  ", PrintableText(series.series(), 128), " ", verdict::GainPercentText(series.mean()), " ",
                    IntervalText(series));
  }
  if (look.next_look() > 0) absl::StrAppend(&text, "; next look at ", look.next_look());
  constexpr int kMoreThan = 201;
  if (look.rounds_needed() >= kMoreThan) {
    text += "; needs more than 200 rounds";
  } else if (look.rounds_needed() > 0) {
    absl::StrAppend(&text, "; needs about ", look.rounds_needed(), " rounds");
  }
  return text;
}

}  // namespace

std::string EventText(const v1::JobEvent& event) {
  switch (event.event_case()) {
    case v1::JobEvent::kJob:
      return JobText(event.job());
    case v1::JobEvent::kRoundDone:
      return RoundText(event.round_done());
    case v1::JobEvent::kRoundDiscarded:
      return absl::StrCat("round ", event.round_discarded().round(),
                          " discarded: ", PrintableText(event.round_discarded().cause(), 64), " ",
                          PrintableText(event.round_discarded().reason(), 64), ": ",
                          PrintableText(event.round_discarded().detail(), 1024));
    case v1::JobEvent::kLook:
      return LookText(event.look());
    case v1::JobEvent::kProgress:
    case v1::JobEvent::EVENT_NOT_SET:
      break;
  }
  return "an event that this client doesn't know";
}

bool IsTerminal() {
  const char* const kind = std::getenv("TERM");
  return isatty(STDERR_FILENO) == 1 && kind != nullptr && absl::string_view(kind) != "dumb";
}

Progress::Progress(const Session& session, bool terminal) : session_(session), terminal_(terminal) {}

Progress::~Progress() { Erase(); }

void Progress::Show(const v1::JobEvent& event) {
  line_.Take(event);
  const bool passing = event.has_progress();
  if (!passing && session_.events && status_.ok()) status_ = PrintEvent(ProtoToJson(event));
  if (!terminal_) {
    if (!passing) std::fputs(absl::StrCat(EventText(event), "\n").c_str(), stderr);
    return;
  }
  Erase();
  if (!passing && !event.has_round_done()) std::fputs(absl::StrCat(EventText(event), "\n").c_str(), stderr);
  DrawLine();
}

void Progress::Erase() {
  if (!line_open_) return;
  std::fputs("\r\x1b[K", stderr);  // To the line's begin, then away with it.
  std::fflush(stderr);
  line_open_ = false;
}

void Progress::DrawLine() {
  const std::string text = line_.Text();
  if (text.empty()) return;
  // A line that wraps could not be erased. Letters of several bytes make it a little too short, which does no harm.
  constexpr std::size_t kUsual = 80;
  winsize size{};
  const bool told = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  const std::size_t columns = told ? size.ws_col : kUsual;
  constexpr std::size_t kLeast = 8;
  std::fputs(PrintableText(text, std::max(columns, kLeast) - 4).c_str(), stderr);
  std::fflush(stderr);
  line_open_ = true;
}

}  // namespace keval::cli
