#include "core/verdict/samples.h"

#include <cstddef>
#include <limits>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/field_error.h"
#include "base/number.h"
#include "base/text.h"
#include "core/verdict/measured_series.h"

namespace keval::verdict {
namespace {

constexpr absl::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::size_t kColumns = 9;

absl::Status LineError(std::int64_t line, absl::string_view why) {
  const std::string place = absl::StrCat("line ", line);
  return WithField(absl::InvalidArgumentError(absl::StrCat("samples: ", place, ": ", why)),
                   {.field = "samples", .value = place, .limit = std::string(why)});
}

std::string Quoted(absl::string_view text) { return absl::StrCat("\"", PrintableText(text, 80), "\""); }

struct Record {
  std::int64_t line = 0;  // Where it begins; a quoted newline lets it end further down.
  std::vector<std::string> fields;
};

// Splits RFC 4180 text with "\n" line ends into records, one call each.
class RecordReader {
 public:
  explicit RecordReader(absl::string_view text) : rest_(text) {}

  bool AtEnd() const { return rest_.empty(); }

  // REQUIRES: !AtEnd().
  absl::StatusOr<Record> Next() {
    Record record{.line = line_};
    for (;;) {
      std::string field;
      if (absl::Status status = ReadField(&field); !status.ok()) return status;
      record.fields.push_back(std::move(field));
      if (rest_.empty()) return record;
      const char separator = rest_.front();
      rest_.remove_prefix(1);
      if (separator == ',') continue;
      ++line_;
      return record;
    }
  }

 private:
  // Leaves `rest_` at the comma or newline behind the field, or empty.
  absl::Status ReadField(std::string* field) {
    if (absl::StartsWith(rest_, "\"")) return ReadQuoted(field);
    const std::size_t end = rest_.find_first_of(absl::string_view("\",\n\r\0", 5));
    *field = std::string(rest_.substr(0, end));
    rest_.remove_prefix(end == absl::string_view::npos ? rest_.size() : end);
    if (rest_.empty() || rest_.front() == ',' || rest_.front() == '\n') return absl::OkStatus();
    if (rest_.front() == '\r') return LineError(line_, "a carriage return: lines must end in \\n alone, not CRLF");
    if (rest_.front() == '\0') return LineError(line_, "a NUL byte");
    return LineError(line_, "a quote inside a field that doesn't begin with one");
  }

  absl::Status ReadQuoted(std::string* field) {
    const std::int64_t opened = line_;
    rest_.remove_prefix(1);
    for (;;) {
      if (rest_.empty()) return LineError(opened, "a quoted field never ends");
      const char c = rest_.front();
      rest_.remove_prefix(1);
      if (c == '\0') return LineError(line_, "a NUL byte");
      if (c == '\n') ++line_;
      if (c != '"') {
        *field += c;
      } else if (absl::StartsWith(rest_, "\"")) {
        *field += '"';
        rest_.remove_prefix(1);
      } else {
        break;
      }
    }
    if (rest_.empty() || rest_.front() == ',' || rest_.front() == '\n') return absl::OkStatus();
    if (rest_.front() == '\r') return LineError(line_, "a carriage return: lines must end in \\n alone, not CRLF");
    return LineError(line_, "text behind a quoted field");
  }

  absl::string_view rest_;
  std::int64_t line_ = 1;
};

absl::Status CheckHeader(const Record& header) {
  const std::vector<std::string> want = absl::StrSplit(kSamplesHeader, ',');
  if (header.fields == want) return absl::OkStatus();
  const auto holds = [](const std::vector<std::string>& names, const std::string& name) {
    for (const std::string& candidate : names) {
      if (candidate == name) return true;
    }
    return false;
  };
  for (const std::string& name : header.fields) {
    if (!holds(want, name)) return LineError(header.line, absl::StrCat("unknown column ", Quoted(name)));
  }
  for (const std::string& name : want) {
    if (!holds(header.fields, name)) {
      return LineError(header.line, absl::StrCat("column ", Quoted(name), " is missing"));
    }
  }
  return LineError(header.line, absl::StrCat("the columns must be ", kSamplesHeader, " in this order, each once"));
}

// The whole of `text` in digits, at most `max`.
std::optional<std::int64_t> ParseDigits(absl::string_view text, std::int64_t max) {
  for (const char c : text) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(c))) return std::nullopt;
  }
  const std::optional<std::int64_t> value = ParseInt64(text);
  return value && *value <= max ? value : std::nullopt;
}

std::optional<Role> ParseRole(absl::string_view text) {
  for (const Role role : {Role::kPrimary, Role::kGuard, Role::kControl}) {
    if (text == RoleName(role)) return role;
  }
  return std::nullopt;
}

class RowParser {
 public:
  explicit RowParser(const Record& record) : record_(record) {}

  absl::StatusOr<Sample> Parse() {
    if (record_.fields.size() == 1 && record_.fields[0].empty()) return LineError(record_.line, "an empty line");
    if (record_.fields.size() != kColumns) {
      return LineError(record_.line,
                       absl::StrCat(record_.fields.size(), " fields where the header has ", kColumns, " columns"));
    }
    Sample sample;
    sample.series = record_.fields[0];
    if (sample.series.empty()) return LineError(record_.line, "the series has no name");
    if (!IsValidUtf8(sample.series)) return LineError(record_.line, "the series' name is not UTF-8");
    const std::string& role = record_.fields[1];
    if (role == "diagnostic") {
      return LineError(record_.line, "role \"diagnostic\": diagnostics never decide and belong in diagnostics.csv");
    }
    const std::optional<Role> parsed = ParseRole(role);
    if (!parsed) {
      return LineError(record_.line, absl::StrCat("unknown role ", Quoted(role), ": primary, guard or control"));
    }
    sample.role = *parsed;
    constexpr int kMaxInt = std::numeric_limits<int>::max() - 1;  // A round more must still be an int.
    const std::int64_t round = Number(2, "round", 0, kMaxInt);
    const std::int64_t quad = Number(3, "quad", 0, kMaxInt);
    const std::int64_t pos = Number(4, "pos", 0, 3);
    const std::string& arm = record_.fields[5];
    if (arm != "A" && arm != "B") Fail(absl::StrCat("arm ", Quoted(arm), " must be A or B"));
    const std::int64_t rep = Number(6, "rep", 0, kMaxInt);
    sample.ns = Number(7, "ns", 1, std::numeric_limits<std::int64_t>::max());
    sample.throttled = Number(8, "throttled", 0, 1) == 1;
    if (!status_.ok()) return status_;
    sample.round = static_cast<int>(round);
    sample.quad = static_cast<int>(quad);
    sample.pos = static_cast<int>(pos);
    sample.arm = arm[0];
    sample.rep = static_cast<int>(rep);
    return sample;
  }

 private:
  void Fail(absl::string_view why) {
    if (status_.ok()) status_ = LineError(record_.line, why);
  }

  std::int64_t Number(std::size_t column, absl::string_view name, std::int64_t min, std::int64_t max) {
    const std::string& text = record_.fields[column];
    const std::optional<std::int64_t> value = ParseDigits(text, max);
    if (value && *value >= min) return *value;
    Fail(absl::StrCat(name, " ", Quoted(text), " must be a whole number in [", min, ", ", max, "], in digits alone"));
    return min;
  }

  const Record& record_;
  absl::Status status_;
};

std::string QuotedIfNeeded(const std::string& name) {
  if (name.find_first_of("\",\n\r") == std::string::npos) return name;
  std::string out = "\"";
  for (const char c : name) out.append(c == '"' ? 2 : 1, c);
  return out + '"';
}

}  // namespace

absl::StatusOr<std::vector<Sample>> ParseSamples(absl::string_view csv) {
  if (csv.empty()) return LineError(1, "the file is empty");
  if (absl::StartsWith(csv, kByteOrderMark)) {
    return LineError(1, "a byte order mark: the file must begin with the header");
  }
  RecordReader reader(csv);
  const absl::StatusOr<Record> header = reader.Next();
  if (!header.ok()) return header.status();
  if (absl::Status status = CheckHeader(*header); !status.ok()) return status;
  std::vector<Sample> samples;
  std::vector<std::int64_t> lines;
  while (!reader.AtEnd()) {
    const absl::StatusOr<Record> record = reader.Next();
    if (!record.ok()) return record.status();
    absl::StatusOr<Sample> sample = RowParser(*record).Parse();
    if (!sample.ok()) return sample.status();
    samples.push_back(*std::move(sample));
    lines.push_back(record->line);
  }
  if (samples.empty()) return LineError(2, "no samples: the file ends behind its header");
  const RowName line_name = [&lines](std::size_t i) { return absl::StrCat("line ", lines[i]); };
  const auto measured = MeasureSeries(samples, line_name);
  if (!measured.ok()) return measured.status();
  return samples;
}

std::string FormatSamples(const std::vector<Sample>& samples) {
  std::string out = absl::StrCat(kSamplesHeader, "\n");
  for (const Sample& sample : samples) {
    absl::StrAppend(&out, QuotedIfNeeded(sample.series), ",", RoleName(sample.role), ",", sample.round, ",");
    absl::StrAppend(&out, sample.quad, ",", sample.pos, ",", absl::string_view(&sample.arm, 1), ",", sample.rep, ",");
    absl::StrAppend(&out, sample.ns, ",", sample.throttled ? "1" : "0", "\n");
  }
  return out;
}

absl::string_view RoleName(Role role) {
  switch (role) {
    case Role::kPrimary:
      return "primary";
    case Role::kGuard:
      return "guard";
    case Role::kControl:
      return "control";
  }
  return "unknown";
}

}  // namespace keval::verdict
