// Parts of the command line that need no process.
#include <limits>
#include <new>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/cli/exit_code.h"
#include "client/cli/job_output.h"
#include "client/cli/progress.h"
#include "client/cli/proto_json.h"
#include "client/cli/report_dir.h"
#include "client/cli/session.h"
#include "client/cli/tensor_files.h"
#include "client/tensor_file/npy.h"
#include "keval/v1/benchmark.pb.h"
#include "tests/unit/client/temporary_folder.h"

namespace keval::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(CliTest, ExitCodesAreThoseThatScriptsRelyOn) {
  EXPECT_EQ(ExitCodeOf(absl::OkStatus()), 0);
  for (const auto code :
       {absl::StatusCode::kInvalidArgument, absl::StatusCode::kNotFound, absl::StatusCode::kFailedPrecondition}) {
    EXPECT_EQ(ExitCodeOf(absl::Status(code, "")), 2);
  }
  for (const auto code :
       {absl::StatusCode::kUnavailable, absl::StatusCode::kDeadlineExceeded, absl::StatusCode::kResourceExhausted,
        absl::StatusCode::kUnauthenticated, absl::StatusCode::kPermissionDenied, absl::StatusCode::kInternal}) {
    EXPECT_EQ(ExitCodeOf(absl::Status(code, "")), 6);
  }
  EXPECT_EQ(ExitCodeOf(absl::CancelledError()), 7);
}

TEST(CliTest, JobsEndInTheirVerdictsExitCode) {
  v1::BenchmarkJob job;
  job.set_state(v1::BenchmarkJob::DONE);
  const auto code = [&](const char* verdict, const char* cause, verdict::Require require) {
    job.set_verdict(verdict);
    job.set_failure_cause(cause);
    return JobExitCode(job, require);
  };
  EXPECT_EQ(code("IMPROVED", "", verdict::Require::kImproved), 0);
  EXPECT_EQ(code("EQUIVALENT", "", verdict::Require::kImproved), 3);
  EXPECT_EQ(code("REGRESSED", "", verdict::Require::kImproved), 1);
  EXPECT_EQ(code("REGRESSED", "", verdict::Require::kAny), 0);
  EXPECT_EQ(code("CONTRACT_FAILED", "", verdict::Require::kAny), 4);
  EXPECT_EQ(code("FAILED", "candidate", verdict::Require::kAny), 5);
  EXPECT_EQ(code("FAILED", "infrastructure", verdict::Require::kAny), 6);
  job.set_state(v1::BenchmarkJob::CANCELLED);
  EXPECT_EQ(code("", "", verdict::Require::kAny), 7);
}

TEST(CliTest, JobDocumentHasExactlyItsFourKeys) {
  v1::BenchmarkJob job;
  job.set_name("jobs/a");
  job.set_state(v1::BenchmarkJob::RUNNING);
  EXPECT_EQ(JobToJson(job).dump(), R"({"name":"jobs/a","state":"RUNNING","verdict":"","reason":""})");
  EXPECT_EQ(JobName("abc"), "jobs/abc");
  EXPECT_EQ(JobName("jobs/abc"), "jobs/abc");
}

TEST(CliTest, EnumValuesAreShortAndUnknownOnesAreDigits) {
  EXPECT_EQ(EnumText(v1::DataType_descriptor(), v1::DATA_TYPE_BFLOAT16), "bfloat16");
  EXPECT_EQ(EnumText(v1::DataType_descriptor(), 99), "99");  // A newer server's.
}

TEST(CliTest, ProtosBecomeStrictJson) {
  v1::BenchmarkSpec spec;
  spec.set_seed(18446744073709551615U);
  spec.add_primaries()->set_dtype(v1::DATA_TYPE_BFLOAT16);
  spec.mutable_primaries(0)->set_num_tokens(9007199254740993);
  (*spec.mutable_margins())["primary"] = 0.01;
  (*spec.mutable_margins())["guard"] = -std::numeric_limits<double>::infinity();
  spec.mutable_procedure()->add_a_sup(std::numeric_limits<double>::quiet_NaN());
  const std::string text = ProtoToJson(spec).dump();
  EXPECT_THAT(text, HasSubstr("\"seed\":18446744073709551615"));
  EXPECT_THAT(text, HasSubstr("\"num_tokens\":9007199254740993"));
  EXPECT_THAT(text, HasSubstr("\"dtype\":\"bfloat16\""));
  EXPECT_THAT(text, HasSubstr("\"margins\":{\"guard\":\"-inf\",\"primary\":0.01}"));
  EXPECT_THAT(text, HasSubstr("\"a_sup\":[\"nan\"]"));
  EXPECT_THAT(text, Not(HasSubstr("diagnostics")));  // A message that isn't set.
}

// Case 10.
TEST(CliTest, EventsCarryNoControlSequence) {
  v1::JobEvent event;
  auto* const discarded = event.mutable_round_discarded();
  discarded->set_detail("red \x1b[31mfail\x1b[0m \xc2\x9b\nnext");
  const std::string text = EventText(event);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_EQ(text.find("\xc2\x9b"), std::string::npos);
  EXPECT_THAT(text, HasSubstr("\\u001B[31mfail"));
}

TEST(CliTest, AnExceptionIsReportedAsItWasAskedFor) {
  const auto fail = []() -> int { throw std::bad_alloc(); };
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(Guarded(/*json=*/true, fail), 6);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), StartsWith(R"({"code":"INTERNAL","field":"","message":)"));
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(Guarded(/*json=*/false, fail), 6);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), StartsWith("keval: INTERNAL: "));
  EXPECT_EQ(Guarded(/*json=*/false, [] { return 3; }), 3);
}

TEST(CliTest, AReportThatCantBeWalkedThroughIsRefused) {
  const std::string deep =
      R"({"name": "jobs/1", "looks": )" + std::string(1000000, '[') + std::string(1000000, ']') + "}";
  for (const std::string& text : {deep, std::string("[]"), std::string("{"), std::string(R"({"a": 1, "a": 2})")}) {
    EXPECT_EQ(ReportMarkdown(text).status().code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(ReportLines(text).status().code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(ReportAsWritten(text).status().code(), absl::StatusCode::kDataLoss);
  }
  const auto written = ReportAsWritten(R"({"b": 1, "a": 2})");
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(written->dump(), R"({"b":1,"a":2})");
}

// Case 6: the four files become one that `keval gradient` takes.
TEST(CliTest, NamesNpyTensorsAfterTheirFiles) {
  const std::string cases = KEVAL_TEST_CASES_DIR "/reports/npy_fortran_order.";
  const auto tensors = ReadTensors({cases + "hidden.npy", "weight=" + cases + "weight.npy"}, "", std::nullopt);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_EQ(tensors->at(0).name, "hidden");
  EXPECT_EQ(tensors->at(1).name, "weight");
  const TemporaryFolder folder;
  EXPECT_EQ(WriteTensors(folder.File("two.npy"), *tensors).code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(WriteTensors(folder.File("both.safetensors"), *tensors).ok());
  const auto weight = ReadOneTensor(folder.File("both.safetensors"), "weight", std::nullopt);
  ASSERT_TRUE(weight.ok()) << weight.status();
  EXPECT_EQ(weight->tensor.bytes(), tensors->at(1).tensor.bytes());
  EXPECT_FALSE(ReadOneTensor(folder.File("both.safetensors"), "", std::nullopt).ok());
  EXPECT_FALSE(ReadOneTensor(folder.File("both.safetensors"), "bias", std::nullopt).ok());
  EXPECT_FALSE(ReadTensors({folder.File("both.safetensors")}, "", DType::kBFloat16).ok());
}

}  // namespace
}  // namespace keval::cli
