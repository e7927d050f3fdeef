// The parts of a report that explain rather than measure.
#ifndef KEVAL_SERVER_REPORT_TEXT_H_
#define KEVAL_SERVER_REPORT_TEXT_H_

#include <string>

#include "absl/strings/string_view.h"
#include "keval/v1/benchmark.pb.h"
#include "server/job_evidence.h"
#include "server/report_builder.h"

namespace keval::server {

// `surroundings` everywhere: what the job runner stored as "environment" ({"environment", "build"}), or null.

// Which variant each arm ran and the hash of the program that ran it.
Json ArmsJson(const v1::BenchmarkSpec& spec, const Json& surroundings);

// Of keval, its build, LibTorch, CUDA, the driver and the procedure.
Json VersionsJson(const Json& surroundings);

// What a time in samples.csv includes.
Json TimedRegionJson(const v1::BenchmarkSpec& spec, const Json& surroundings);

// What a reader should know before believing the figures.
Json NotesJson(const JobRecord& record);

// One field of a CSV line, quoted where it must be (RFC 4180).
std::string CsvWord(absl::string_view text);

}  // namespace keval::server

#endif  // KEVAL_SERVER_REPORT_TEXT_H_
