#include "client/cli/progress.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/number.h"
#include "base/text.h"
#include "client/cli/proto_json.h"

namespace keval::cli {
namespace {

// ln units as a percentage.
std::string Percent(double ln_ratio) {
  const double percent = 100 * std::expm1(ln_ratio);
  return absl::StrCat(percent >= 0 ? "+" : "", FixedText(percent, 2), " %");
}

std::string JobText(const v1::BenchmarkJob& job) {
  std::string text = absl::StrCat(PrintableText(job.name()), " ", v1::BenchmarkJob::State_Name(job.state()));
  if (!job.verdict().empty()) absl::StrAppend(&text, ": ", PrintableText(job.verdict()));
  if (!job.reason().empty()) absl::StrAppend(&text, " (", PrintableText(job.reason()), ")");
  return text;
}

std::string RoundText(const v1::RoundDone& round) {
  std::string text = absl::StrCat("round ", round.round(), " in ", FixedText(round.seconds(), 1), " s");
  const std::map<std::string, double> sorted(round.differences().begin(), round.differences().end());
  for (const auto& [series, difference] : sorted) {
    absl::StrAppend(&text, "  ", PrintableText(series, 128), " ", Percent(difference));
  }
  return text;
}

std::string LookText(const v1::Look& look) {
  std::string text = absl::StrCat("look at ", look.rounds(), " rounds:");
  for (const auto& series : look.series()) {
    absl::StrAppend(&text, "  ", PrintableText(series.series(), 128), " ", Percent(series.mean()), " [",
                    Percent(series.sup_lo()), ", ", Percent(series.sup_hi()), "]");
  }
  if (look.next_look() > 0) absl::StrAppend(&text, "; next look at ", look.next_look());
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
    case v1::JobEvent::EVENT_NOT_SET:
      break;
  }
  return "an event that this client doesn't know";
}

Progress::Progress(const Session& session) : session_(session), terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (line_open_) std::fputs("\n", stderr);
}

void Progress::Show(const v1::JobEvent& event) {
  if (session_.events && status_.ok()) status_ = PrintEvent(ProtoToJson(event));
  const std::string text = EventText(event);
  if (!terminal_) {
    std::fputs(absl::StrCat(text, "\n").c_str(), stderr);
    return;
  }
  // "\r" and "erase to the end of the line" stand over the last finished round; anything else stays.
  const bool replaceable = event.event_case() == v1::JobEvent::kRoundDone;
  std::fputs(absl::StrCat(line_open_ ? "\r\x1b[K" : "", text, replaceable ? "" : "\n").c_str(), stderr);
  std::fflush(stderr);
  line_open_ = replaceable;
}

}  // namespace keval::cli
