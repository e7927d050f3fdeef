// keval report JOB: the report of a finished job.
#include <algorithm>
#include <cstddef>
#include <limits>
#include <memory>
#include <string>

#include "absl/strings/str_split.h"
#include "base/field_error.h"
#include "base/text.h"
#include "client/cli/commands.h"
#include "client/cli/exit_code.h"
#include "client/cli/flags.h"
#include "client/cli/job_output.h"
#include "client/cli/png.h"
#include "client/cli/report_dir.h"

namespace keval::cli {
namespace {

struct ReportFlags {
  std::string job;
  std::string report_dir;
  std::string plots;
  verdict::Require require = verdict::Require::kAny;
};

bool IsPrintable(const std::string& text) {
  const auto lines = absl::StrSplit(text, '\n');
  return std::all_of(lines.begin(), lines.end(), [](absl::string_view line) {
    return PrintableText(line, std::numeric_limits<std::size_t>::max()) == std::string(line);
  });
}

absl::Status PrintReport(const Session& session, const std::string& report_json) {
  if (!session.json) {
    const auto markdown = ReportMarkdown(report_json);
    return markdown.ok() ? PrintText(*markdown) : markdown.status();
  }
  const auto report = ReportAsWritten(report_json);
  if (!report.ok()) return report.status();
  // report.json itself, byte for byte; with characters in it that could steer a terminal: the same document, escaped.
  return IsPrintable(report_json) ? PrintText(report_json) : PrintJson(session, *report);
}

absl::Status CheckPlots(const ReportFlags& flags) {
  if (flags.plots.empty()) return absl::OkStatus();
  if (flags.plots != "svg" && flags.plots != "png") return InvalidField("--plots", flags.plots, "svg or png");
  if (flags.report_dir.empty()) return InvalidField("--plots", flags.plots, "--report_dir beside it");
  return flags.plots == "png" ? CheckPngConverter() : absl::OkStatus();
}

int Report(const Session& session, const ReportFlags& flags) {
  if (const auto status = CheckPlots(flags); !status.ok()) return Complain(status, session.json);
  if (!flags.report_dir.empty()) {
    if (const auto status = PrepareReportDir(flags.report_dir); !status.ok()) return Complain(status, session.json);
  }
  const auto client = session.Connect();
  if (!client.ok()) return Complain(client.status(), session.json);
  const auto job = client->GetJob(JobName(flags.job), session.Options());
  if (!job.ok()) return Complain(job.status(), session.json);
  const auto files = client->GetReport(job->name(), {}, session.Options());
  if (!files.ok()) return Complain(files.status(), session.json);
  absl::Status written;
  if (!flags.report_dir.empty()) written = WriteReport(flags.report_dir, *files, !flags.plots.empty());
  if (written.ok() && flags.plots == "png") written = WritePngs(flags.report_dir);
  const auto text = ReportText(*files);
  if (!text.ok()) return Complain(text.status(), session.json);
  if (const auto status = PrintReport(session, *text); !status.ok()) return Complain(status, session.json);
  const int gate = JobExitCode(*job, flags.require);
  if (written.ok()) return gate;
  const int failed = Complain(written, session.json);
  return gate == kDone ? failed : gate;
}

}  // namespace

void AddReport(CLI::App* app, Action* action) {
  CLI::App* const command = app->add_subcommand("report", "print the report of a finished job (Markdown, or --json)");
  const auto flags = std::make_shared<ReportFlags>();
  command->add_option("JOB", flags->job, "jobs/ID or ID")->required();
  command->add_option("--report_dir", flags->report_dir, "folder for the report's files");
  command->add_option("--plots", flags->plots,
                      "svg or png: its pictures as files too, into --report_dir; png by rsvg-convert");
  AddRequire(command, &flags->require, "any");
  command->callback([=] { *action = [flags](Session& session) { return Report(session, *flags); }; });
}

}  // namespace keval::cli
