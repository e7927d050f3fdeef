#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "client/cli/progress.h"
#include "client/cli/progress_line.h"
#include "client/cli/session.h"

namespace keval::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

v1::JobEvent JobEvent(v1::BenchmarkJob::State state) {
  v1::JobEvent event;
  event.set_sequence(1);
  v1::BenchmarkJob& job = *event.mutable_job();
  job.set_name("jobs/a");
  job.set_state(state);
  job.set_rounds_planned(24);
  auto* const guard = job.mutable_plan()->add_series();
  guard->set_series("g");
  guard->set_role("guard");
  auto* const primary = job.mutable_plan()->add_series();
  primary->set_series("p");
  primary->set_role("primary");
  return event;
}

v1::JobEvent RoundEvent(int round, double seconds, double mean) {
  v1::JobEvent event;
  event.set_sequence(round + 1);
  v1::RoundDone& done = *event.mutable_round_done();
  done.set_round(round);
  done.set_seconds(seconds);
  done.set_next_look(6);
  (*done.mutable_differences())["p"] = mean;
  if (round < 2) return event;
  for (const char* name : {"g", "p"}) {
    auto* const running = done.add_running();
    running->set_series(name);
    running->set_mean(name[0] == 'p' ? mean : 0.5);
    running->set_sup_lo(mean - 0.01);
    running->set_sup_hi(mean + 0.01);
    running->set_valued_rounds(round);
  }
  return event;
}

v1::JobEvent NowEvent(const char* phase, int round, const std::string& series, int number) {
  v1::JobEvent event;
  v1::JobProgress& now = *event.mutable_progress();
  now.set_phase(phase);
  now.set_round(round);
  now.set_series(series);
  now.set_series_number(number);
  now.set_series_count(series.empty() ? 0 : 7);
  return event;
}

TEST(DurationTextTest, GrowsCoarser) {
  EXPECT_EQ(DurationText(-1), "0 s");
  EXPECT_EQ(DurationText(119.4), "119 s");
  EXPECT_EQ(DurationText(190), "3 min");
  EXPECT_EQ(DurationText(7500), "2 h 5 min");
  EXPECT_EQ(DurationText(1e300), DurationText(1e9));
}

TEST(ProgressLineTest, ShowsShapeRoundLookIntervalAndTimeLeft) {
  ProgressLine line;
  EXPECT_EQ(line.Text(), "");
  line.Take(JobEvent(v1::BenchmarkJob::QUEUED));
  EXPECT_EQ(line.Text(), "QUEUED");
  line.Take(JobEvent(v1::BenchmarkJob::RUNNING));
  line.Take(NowEvent("pilot", 0, "p", 2));
  EXPECT_EQ(line.Text(), "pilot · 2 of 7 p");
  line.Take(RoundEvent(1, 10, 0.02));
  line.Take(RoundEvent(2, 14, 0.02));
  line.Take(NowEvent("round", 3, "g", 1));
  EXPECT_EQ(
      line.Text(),
      "round 3 of at most 24 · shape 1 of 7 g · look at 6 · +2.02 % [+1.01 %, +3.05 %] · 48 s to the look, at most "
      "4 min");
  line.Take(NowEvent("diagnose", 0, "p/chunks=4", 3));
  EXPECT_EQ(line.Text(), "diagnose · 3 of 7 p/chunks=4 · +2.02 % [+1.01 %, +3.05 %]");
  line.Take(JobEvent(v1::BenchmarkJob::DONE));
  EXPECT_EQ(line.Text(), "");
}

TEST(ProgressLineTest, WithoutProgressEventsRoundsStillCount) {
  ProgressLine line;
  line.Take(JobEvent(v1::BenchmarkJob::RUNNING));
  line.Take(RoundEvent(1, 10, 0.02));
  EXPECT_EQ(line.Text(), "round 1 of at most 24 · look at 6 · 50 s to the look, at most 4 min");
}

// What the events write to stderr.
std::string Shown(bool terminal) {
  const Session session;
  ::testing::internal::CaptureStderr();
  {
    Progress progress(session, terminal);
    progress.Show(JobEvent(v1::BenchmarkJob::RUNNING));
    progress.Show(RoundEvent(1, 10, 0.02));
    progress.Show(NowEvent("round", 2, "red \x1b[31m", 1));
    progress.Show(RoundEvent(2, 10, 0.02));
    v1::JobEvent look;
    look.mutable_look()->set_rounds(6);
    look.mutable_look()->set_next_look(10);
    look.mutable_look()->set_rounds_needed(14);
    progress.Show(look);
  }
  return ::testing::internal::GetCapturedStderr();
}

TEST(ProgressTest, ALogGetsPlainLines) {
  const std::string text = Shown(/*terminal=*/false);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find('\r'), std::string::npos);
  EXPECT_THAT(text, HasSubstr("jobs/a RUNNING\n"));
  EXPECT_THAT(text, HasSubstr("round 1 in 10.0 s  p +2.02 %; look at 6\n"));
  EXPECT_THAT(text, HasSubstr("round 2 in 10.0 s  p +2.02 % [+1.01 %, +3.05 %]; look at 6\n"));
  EXPECT_THAT(text, HasSubstr("look at 6 rounds:; next look at 10; needs about 14 rounds\n"));
  EXPECT_THAT(text, Not(HasSubstr("shape")));
}

TEST(ProgressTest, ATerminalGetsOneLineThatIsDrawnOverAndErased) {
  const std::string text = Shown(/*terminal=*/true);
  EXPECT_THAT(text, HasSubstr("jobs/a RUNNING\n"));
  EXPECT_THAT(text, HasSubstr("\r\x1b[Kround 2 of at most 24 · shape 1 of 7 red \\u001B[31m"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b[31m")));
  EXPECT_EQ(text.substr(text.size() - 4), "\r\x1b[K");
}

}  // namespace
}  // namespace keval::cli
