#include "client/report/markdown_evidence.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/number.h"
#include "client/report/markdown_text.h"

namespace keval::report {
namespace {

constexpr std::array<absl::string_view, 2> kArms = {"base", "candidate"};
constexpr std::array<absl::string_view, 3> kArmsAndDifference = {"base", "candidate", "difference"};

// The heading of a row that compares the arms.
std::string ArmName(absl::string_view key) { return key == "difference" ? "candidate − base" : std::string(key); }

std::string SeriesSpan(const Json& entry) { return CodeSpan(TextOf(entry, "series")); }

std::string YesNo(const Json& object, absl::string_view key) {
  const Json& value = Member(object, key);
  if (!value.is_boolean()) return std::string(kAbsent);
  return value.get<bool>() ? "yes" : "no";
}

// A number and nothing else: other values would be text from outside.
std::string PlainNumber(const Json& value) {
  const auto number = NumberOf(value);
  return number ? DoubleText(*number) : std::string(kAbsent);
}

// "`mm` 8, `add_` 8".
std::string Counts(const Json& by_name) {
  if (!by_name.is_object() || by_name.empty()) return std::string(kAbsent);
  std::vector<std::string> parts;
  for (const auto& [name, count] : by_name.items()) {
    parts.push_back(absl::StrCat(CodeSpan(name), " ", PlainNumber(count)));
  }
  return absl::StrJoin(parts, ", ");
}

// Two columns of a report's object of texts.
std::string FactsTable(const Json& facts, absl::string_view heading) {
  Table table({std::string(heading), "value"});
  if (facts.is_object()) {
    for (const auto& [name, value] : facts.items()) table.Add({CodeSpan(name), CodeSpan(TextOf(value))});
  }
  return table.Text();
}

std::string Values(const Json& list) {
  std::vector<std::string> parts;
  for (const Json& value : list) parts.push_back(PlainNumber(value));
  return parts.empty() ? std::string(kAbsent) : absl::StrJoin(parts, ", ");
}

// Least and greatest of a device reading over the blocks of an arm.
struct Range {
  std::optional<double> least;
  std::optional<double> greatest;

  void Take(std::optional<double> value) {
    if (!value) return;
    least = std::min(least.value_or(*value), *value);
    greatest = std::max(greatest.value_or(*value), *value);
  }
  std::string Text() const {
    if (!least) return std::string(kAbsent);
    return absl::StrCat(SignificantText(*least, 6), " … ", SignificantText(*greatest, 6));
  }
};

std::string ReadingsTable(const Json& blocks) {
  Table table({"device reading at block edges", "arm A", "arm B"});
  for (const absl::string_view key : {"sm_clock_mhz", "memory_clock_mhz", "power_watts", "temperature_celsius",
                                      "throttle_reasons", "other_processes"}) {
    std::map<std::string, Range> ranges;
    for (const Json& block : blocks) {
      for (const absl::string_view edge : {"before", "after"}) {
        ranges[TextOf(block, "arm")].Take(NumberOf(Member(block, edge), key));
      }
    }
    table.Add({absl::StrCat("`", key, "`"), ranges["A"].Text(), ranges["B"].Text()});
  }
  return table.Text();
}

// What else happened on the device and the machine.
std::string NoiseTable(const Json& report) {
  const Json& noise = Member(report, "noise");
  if (!noise.is_object()) return "";
  const Json& reasons = Member(noise, "throttle_reasons");
  const Json& processes = Member(noise, "other_processes");
  Table table({"noise", "seen"});
  table.Add({"blocks", FixedOf(noise, "blocks", 0)});
  table.Add({"throttle reasons, blocks of arm A", Counts(Member(reasons, "A"))});
  table.Add({"throttle reasons, blocks of arm B", Counts(Member(reasons, "B"))});
  table.Add({"blocks at which the device told its processes", FixedOf(processes, "told", 0)});
  table.Add({"of these with others than ours", FixedOf(processes, "seen", 0)});
  table.Add({"others at once, at most", FixedOf(processes, "most", 0)});
  table.Add({"cores kept busy by others in a round, at most", FixedOf(noise, "most_foreign_cpu_cores", 2)});
  return table.Text();
}

// One row for each series of each round, in the order realised: its quads' arms as they ran.
std::string OrderTable(const Json& blocks) {
  Table table({"round", "series", "arms by quad, in the order realised"});
  std::vector<std::string> row;
  std::string quad;
  const auto flush = [&table, &row] {
    if (!row.empty()) table.Add({row[0], row[1], CodeSpan(row[2])});
    row.clear();
  };
  for (const Json& block : blocks) {
    const std::string round = CodeSpan(TextOf(block, "round"));
    const std::string series = SeriesSpan(block);
    const std::string number = TextOf(block, "quad");
    if (row.empty() || row[0] != round || row[1] != series) {
      flush();
      row = {round, series, ""};
    } else if (number != quad) {
      row[2] += " ";
    }
    quad = number;
    row[2] += TextOf(block, "arm");
  }
  flush();
  return table.Text();
}

// One row for each check: how many of its rows stand how, and what failed in full.
std::string ContractTable(const Json& rows) {
  std::map<std::string, std::map<std::string, int>> by_id;
  for (const Json& row : rows) ++by_id[TextOf(row, "id")][TextOf(row, "status")];
  Table table({"check", "pass", "fail", "not applicable"});
  for (auto& [id, counts] : by_id) {
    table.Add({CodeSpan(id), absl::StrCat(counts["pass"]), absl::StrCat(counts["fail"]),
               absl::StrCat(counts["not_applicable"])});
  }
  return table.Text();
}

std::string ContractRows(const Json& rows, bool failed) {
  Table table({"check", "arm", "case", "measured", "limit", "status", "why"});
  for (const Json& row : rows) {
    if ((TextOf(row, "status") == "fail") != failed) continue;
    table.Add({CodeSpan(TextOf(row, "id")), CodeSpan(TextOf(row, "arm")), CodeSpan(TextOf(row, "case")),
               ShortOf(row, "measured"), ShortOf(row, "limit"), CodeSpan(TextOf(row, "status")),
               CodeSpan(TextOf(row, "why"))});
  }
  return table.Text();
}

}  // namespace

std::string RoundsSection(const Json& report) {
  std::string text;
  Table values({"series", "D_r by round (round: gain)"});
  for (const Json& series : ListOf(report, "series")) {
    const Json& numbers = ListOf(series, "rounds");
    const Json& differences = ListOf(series, "D");
    std::vector<std::string> parts;
    for (std::size_t i = 0; i < differences.size(); ++i) {
      const std::string round = i < numbers.size() ? PlainNumber(numbers[i]) : absl::StrCat(i);
      parts.push_back(absl::StrCat(round, ": ", GainOf(differences[i])));
    }
    values.Add({SeriesSpan(series), parts.empty() ? std::string(kAbsent) : absl::StrJoin(parts, ", ")});
  }
  Table seconds({"round", "seconds", "of them on the device"});
  for (const Json& round : ListOf(report, "rounds")) {
    seconds.Add({CodeSpan(TextOf(round, "round")), FixedOf(round, "seconds", 2), FixedOf(round, "device_seconds", 2)});
  }
  if (values.empty() && seconds.empty()) return "";
  return Folded("Rounds", values.Text() + seconds.Text());
}

std::string MemorySection(const Json& report) {
  Table medians({"series", "base", "candidate", "limit", "met"});
  Table rounds({"series", "round", "base", "candidate"});
  for (const Json& series : ListOf(report, "series")) {
    if (const Json& memory = Member(series, "memory"); memory.is_object()) {
      medians.Add({SeriesSpan(series), BytesOf(memory, "base_bytes"), BytesOf(memory, "candidate_bytes"),
                   BytesOf(memory, "limit_bytes"), YesNo(memory, "met")});
    }
    for (const Json& peak : ListOf(series, "peaks")) {
      rounds.Add({SeriesSpan(series), CodeSpan(TextOf(peak, "round")), BytesOf(peak, "base_bytes"),
                  BytesOf(peak, "candidate_bytes")});
    }
  }
  if (medians.empty() && rounds.empty()) return "";
  return Folded("Incremental peak memory (bytes beyond what was allocated before the call)",
                absl::StrCat(medians.Text(), rounds.Text()));
}

namespace {

// Milliseconds of all kernels of an arm together.
std::string KernelTime(const Json& ns_by_name) {
  if (!ns_by_name.is_object() || ns_by_name.empty()) return std::string(kAbsent);
  constexpr double kNsPerMs = 1e6;
  double sum = 0;
  for (const Json& ns : ns_by_name) sum += NumberOf(ns).value_or(0);
  return FixedText(sum / kNsPerMs, 3);
}

// Bytes by the hardware counters, or why there are none.
std::string DramTables(const Json& report) {
  Table bytes({"series", "arm", "read", "written"});
  Table notes({"series", "no hardware counters, because"});
  for (const Json& series : ListOf(report, "series")) {
    const Json& dram = Member(series, "dram");
    for (const absl::string_view arm : kArmsAndDifference) {
      const Json& count = Member(dram, arm);
      if (!count.is_object()) continue;
      bytes.Add({SeriesSpan(series), ArmName(arm), BytesOf(count, "read_bytes"), BytesOf(count, "written_bytes")});
    }
    if (const std::string note = TextOf(dram, "note"); !note.empty()) notes.Add({SeriesSpan(series), CodeSpan(note)});
  }
  if (bytes.empty() && notes.empty()) return "";
  return absl::StrCat("**Bytes of device memory, measured by hardware counters**\n\n", bytes.Text(), notes.Text());
}

}  // namespace

std::string OperationsSection(const Json& report) {
  Table measured(
      {"series", "arm", "ops measured in a separate profiled run", "kernels measured likewise", "ms in kernels"});
  Table predicted({"series", "chunks", "base bytes", "candidate bytes", "saving", "add ops saved"});
  for (const Json& series : ListOf(report, "series")) {
    for (const absl::string_view arm : kArmsAndDifference) {
      const Json& ops = Member(Member(series, "ops"), arm);
      const Json& kernels = Member(Member(series, "kernels"), arm);
      if (!ops.is_object() && !kernels.is_object()) continue;
      measured.Add({SeriesSpan(series), ArmName(arm), Counts(ops), Counts(kernels),
                    KernelTime(Member(Member(series, "kernel_ns"), arm))});
    }
    if (const Json& traffic = Member(series, "predicted_traffic"); traffic.is_object()) {
      predicted.Add({SeriesSpan(series), CodeSpan(TextOf(traffic, "chunks")), BytesOf(traffic, "base_bytes"),
                     BytesOf(traffic, "candidate_bytes"), BytesOf(traffic, "saving_bytes"),
                     CodeSpan(TextOf(traffic, "add_ops_saved"))});
    }
  }
  if (measured.empty() && predicted.empty()) return "";
  std::string text = measured.empty() ? "Op counts were not measured.\n\n" : "**Measured**\n\n" + measured.Text();
  absl::StrAppend(&text, DramTables(report));
  if (!predicted.empty()) {
    absl::StrAppend(&text,
                    "**Predicted, not measured**: logical bytes of the weight-gradient table by the static model\n\n",
                    predicted.Text());
  }
  return Folded("Operations measured, table traffic predicted", text);
}

std::string DispatchSection(const Json& report) {
  Table table({"series", "arm", "variant", "path", "fallback", "reason"});
  for (const Json& series : ListOf(report, "series")) {
    for (const absl::string_view arm : kArms) {
      const Json& dispatch = Member(Member(series, "dispatch"), arm);
      if (!dispatch.is_object()) continue;
      table.Add({SeriesSpan(series), std::string(arm), CodeSpan(TextOf(dispatch, "variant")),
                 CodeSpan(TextOf(dispatch, "path")), YesNo(dispatch, "fallback"),
                 CodeSpan(TextOf(dispatch, "reason"))});
    }
  }
  return table.empty() ? "" : Folded("Paths that ran", table.Text());
}

std::string ContractSection(const Json& report) {
  const Json& contract = Member(report, "contract");
  if (!contract.is_object()) return "";
  const Json& rows = ListOf(contract, "rows");
  std::string text = absl::StrCat("### Correctness: ", IsTrue(contract, "passed") ? "passed" : "**failed**", "\n\n");
  absl::StrAppend(&text, ContractRows(rows, /*failed=*/true), ContractTable(rows));
  const std::string others = ContractRows(rows, /*failed=*/false);
  if (!others.empty()) absl::StrAppend(&text, Folded("Every row that did not fail", others));
  return text;
}

std::string ExcludedSection(const Json& report) {
  Table rounds({"round", "arm", "cause", "reason", "rows kept in excluded.csv", "what happened"});
  for (const Json& excluded : ListOf(report, "excluded")) {
    rounds.Add({CodeSpan(TextOf(excluded, "round")), CodeSpan(TextOf(excluded, "arm")),
                CodeSpan(TextOf(excluded, "cause")), CodeSpan(TextOf(excluded, "reason")),
                CodeSpan(TextOf(excluded, "rows")), CodeSpan(TextOf(excluded, "detail"))});
  }
  Table quads({"series", "quads", "dropped as throttled", "throttled blocks A", "throttled blocks B"});
  for (const Json& series : ListOf(report, "series")) {
    const auto dropped = NumberOf(series, "quads_dropped");
    if (!dropped || *dropped <= 0) continue;
    const Json& blocks = Member(series, "throttled_blocks");
    quads.Add({SeriesSpan(series), FixedOf(series, "quads", 0), FixedOf(series, "quads_dropped", 0),
               FixedOf(blocks, "A", 0), FixedOf(blocks, "B", 0)});
  }
  if (rounds.empty() && quads.empty()) return "### Excluded\n\nNothing was excluded.\n\n";
  return absl::StrCat("### Excluded\n\n", rounds.Text(), quads.Text());
}

std::string DiagnosticsSection(const Json& report) {
  Table table({"diagnostic", "region", "chunks", "base ms", "candidate ms", "gain", "quads", "predicted saving"});
  Table absent({"diagnostic", "absent because"});
  for (const Json& one : ListOf(report, "diagnostics")) {
    if (const std::string why = TextOf(one, "absent"); !why.empty()) {
      absent.Add({CodeSpan(TextOf(one, "name")), CodeSpan(why)});
      continue;
    }
    table.Add({CodeSpan(TextOf(one, "name")), CodeSpan(TextOf(one, "region")), FixedOf(one, "chunks", 0),
               FixedOf(one, "base_ms", 3), FixedOf(one, "candidate_ms", 3), GainOf(one, "L"),
               CodeSpan(TextOf(one, "quads")), BytesOf(one, "predicted_saving_bytes")});
  }
  if (table.empty() && absent.empty()) return "";
  return Folded(
      "Diagnostics (they never decide)",
      absl::StrCat(table.Text(), absent.Text(),
                   "The saving is the static model's prediction for the gradient table, not a measurement.\n\n"));
}

std::string PlanSection(const Json& report) {
  const Json& plan = Member(report, "plan");
  const Json& config = Member(report, "config");
  if (!plan.is_object() && !config.is_object()) return "";
  Table facts({"declared before round 1", "value"});
  facts.Add({"procedure version", CodeSpan(TextOf(plan, "procedure_version"))});
  facts.Add({"seed", CodeSpan(TextOf(plan, "seed"))});
  facts.Add({"process mode", CodeSpan(TextOf(plan, "process_mode"))});
  facts.Add({"device memory predicted for a round", BytesOf(plan, "predicted_memory_bytes")});
  facts.Add({"device seconds predicted", FixedOf(plan, "predicted_device_seconds", 1)});
  facts.Add({"looks (rounds)", Values(ListOf(config, "looks"))});
  facts.Add({"levels: superiority and regression", Values(ListOf(config, "a_sup"))});
  facts.Add({"levels: equivalence and non-inferiority", Values(ListOf(config, "a_eq"))});
  facts.Add({"levels: control (two-sided)", Values(ListOf(config, "a_ctl"))});
  Table series({"series", "role", "margin", "margin from", "pilot ms", "quads", "timed", "discarded"});
  for (const Json& one : ListOf(plan, "series")) {
    constexpr double kNsPerMs = 1e6;
    constexpr int kDigits = 3;
    const auto pilot = NumberOf(one, "pilot_ns");
    series.Add({SeriesSpan(one), CodeSpan(TextOf(one, "role")), SpreadOf(one, "delta"),
                CodeSpan(TextOf(one, "delta_source")),
                pilot ? FixedText(*pilot / kNsPerMs, kDigits) : std::string(kAbsent), CodeSpan(TextOf(one, "quads")),
                CodeSpan(TextOf(one, "timed_repetitions")), CodeSpan(TextOf(one, "discarded_repetitions"))});
  }
  return Folded("Plan", facts.Text() + series.Text());
}

std::string BlocksSection(const Json& report) {
  const Json& blocks = ListOf(report, "blocks");
  if (blocks.empty()) return "";
  return Folded("Blocks: device readings and order as realised",
                ReadingsTable(blocks) + NoiseTable(report) + OrderTable(blocks));
}

std::string IdentitySection(const Json& report) {
  Table arms({"arm", "variant", "display name", "SHA-256 of what ran"});
  for (const absl::string_view arm : kArms) {
    const Json& one = Member(Member(report, "arms"), arm);
    if (!one.is_object()) continue;
    arms.Add({std::string(arm), CodeSpan(TextOf(one, "variant")), CodeSpan(TextOf(one, "display_name")),
              CodeSpan(TextOf(one, "sha256"))});
  }
  Table times({"job", "value"});
  const Json& time = Member(report, "time");
  if (time.is_object()) {
    times.Add(
        {"device seconds of its rounds", absl::StrCat(FixedOf(time, "device_seconds", 1), " measured, ",
                                                      FixedOf(time, "predicted_device_seconds", 1), " predicted")});
    times.Add({"seconds of its rounds", FixedOf(time, "seconds", 1)});
  }
  for (const absl::string_view key : {"create_time_unix_ms", "start_time_unix_ms", "end_time_unix_ms"}) {
    times.Add({absl::StrCat("`", key, "`"), UtcOf(report, key)});
  }
  times.Add({"server restarts", CodeSpan(TextOf(report, "restarts"))});
  times.Add({"SHA-256 of the spec", CodeSpan(TextOf(report, "spec_digest"))});
  return Folded("Identity and environment",
                absl::StrCat(arms.Text(), FactsTable(Member(report, "versions"), "version"),
                             FactsTable(Member(report, "environment"), "environment"),
                             FactsTable(Member(report, "timed_region"), "timed region"), times.Text()));
}

}  // namespace keval::report
