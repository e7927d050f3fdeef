#include "server/report_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "base/sha256.h"
#include "core/verdict/json.h"
#include "core/verdict/verdict.h"
#include "server/job_evidence.h"
#include "tests/support/fake_round_collector.h"
#include "tests/support/job_fixtures.h"
#include "tests/support/job_server.h"
#include "tests/support/temp_dir.h"

namespace keval::server {
namespace {

using keval::testing::FakeWork;
using keval::testing::JobServer;
using keval::testing::TempDir;
using keval::testing::TestSpec;
using nlohmann::json;

constexpr char kPrimary[] = "64x8x100/float32/bias";

class ReportBuilderTest : public ::testing::Test {
 protected:
  // Runs the job to its end; its report's files.
  std::map<std::string, std::string> Run(const v1::BenchmarkSpec& spec) {
    JobServer server(dir_.path(), work_);
    const std::string name = server.Create(spec).name();
    server.Start();
    server.WaitForEnd(name);
    return server.Report(name);
  }

  const TempDir dir_;
  const std::shared_ptr<FakeWork> work_ = std::make_shared<FakeWork>();
};

TEST_F(ReportBuilderTest, HoldsWhatAReaderNeeds) {
  work_->gain = 0.03;
  work_->on_round = [](int round, int attempt) -> std::optional<WorkFailure> {
    if (round != 1 || attempt > 0) return std::nullopt;
    WorkFailure failure{.cause = "candidate", .reason = "CRASHED", .detail = "signal 11"};
    failure.partial.push_back({.series = kPrimary, .round = 1, .ns = 77});
    return failure;
  };
  auto spec = TestSpec();
  spec.set_seed(9007199254740993);
  spec.mutable_diagnostics()->set_profile(true);
  spec.mutable_diagnostics()->set_backward_only(true);
  spec.mutable_diagnostics()->add_chunk_sweep(4);
  work_->absent_diagnostics["32x8x200/float32/nobias/backward"] = "candidate, OUT_OF_MEMORY: no room";
  (*spec.mutable_margins())["guard"] = 0.02;
  const auto files = Run(spec);
  const json report = json::parse(files.at("report.json"));

  EXPECT_EQ(report.at("format"), "keval.report.v1");
  EXPECT_EQ(report.at("verdict"), "IMPROVED");
  EXPECT_EQ(report.at("reason"), "");
  EXPECT_EQ(report.at("rule"), 8);
  EXPECT_EQ(report.at("stop_look"), 6);
  EXPECT_EQ(report.at("memory"), "met");
  EXPECT_EQ(report.at("non_inferior"), true);
  EXPECT_EQ(report.at("looks").size(), 1U);
  EXPECT_EQ(report.at("config").at("delta").at(kPrimary), 0.01);
  EXPECT_EQ(report.at("spec").at("seed"), "9007199254740993");
  EXPECT_EQ(report.at("plan").at("seed"), 9007199254740993U);
  EXPECT_EQ(report.at("plan").at("series").size(), 3U);
  EXPECT_EQ(report.at("spec_digest").get<std::string>().size(), 64U);
  EXPECT_EQ(report.at("arms").at("candidate").at("variant"), "portable_addmm");
  EXPECT_EQ(report.at("environment").at("cpu_model"), "Test CPU");
  EXPECT_EQ(report.at("timed_region").at("flush_bytes"), 0);
  // Of the six rounds there were; the plan's seconds are to the last look.
  const json& time = report.at("time");
  EXPECT_EQ(time.at("rounds"), 6);
  EXPECT_NEAR(time.at("device_seconds").get<double>(), 6 * work_->device_seconds, 1e-9);
  EXPECT_NEAR(time.at("seconds").get<double>(), 6 * 1.5, 1e-9);
  const double predicted = report.at("plan").at("predicted_device_seconds");
  EXPECT_GT(predicted, 0);
  EXPECT_NEAR(time.at("predicted_device_seconds").get<double>(),
              predicted * 6 / spec.procedure().looks(spec.procedure().looks_size() - 1), 1e-9);
  EXPECT_EQ(report.at("rounds").size(), 6U);
  EXPECT_EQ(report.at("contract").at("passed"), true);
  EXPECT_TRUE(report.at("contract").at("rows")[1].at("measured").is_null());
  EXPECT_TRUE(report.at("contract").at("rows")[1].at("limit").is_null());
  EXPECT_EQ(report.at("recompute"), "keval verdict samples.csv --config report.json");
  EXPECT_FALSE(report.at("notes").empty());

  ASSERT_EQ(report.at("series").size(), 3U);
  const json& primary = report.at("series")[0];
  EXPECT_EQ(primary.at("series"), kPrimary);
  EXPECT_EQ(primary.at("status"), "improved");
  EXPECT_NEAR(primary.at("gain_pct").get<double>(), 100 * (std::exp(0.03) - 1), 0.2);
  EXPECT_EQ(primary.at("D").size(), 6U);
  EXPECT_EQ(primary.at("delta_source"), "default");
  EXPECT_EQ(report.at("series")[1].at("delta_source"), "spec:guard");
  EXPECT_EQ(primary.at("peaks").size(), 6U);
  EXPECT_EQ(primary.at("memory").at("limit_bytes"), (std::int64_t{100} << 20) + (1 << 20));
  EXPECT_EQ(primary.at("memory").at("met"), true);
  EXPECT_EQ(primary.at("dispatch").at("candidate").at("path"), "addmm_ in place");
  EXPECT_EQ(primary.at("ops").at("base").at("aten::add_"), 1);
  EXPECT_EQ(primary.at("ops").at("difference"), (json{{"aten::add_", -1}, {"aten::addmm_", 4}, {"aten::mm", -4}}));
  EXPECT_EQ(primary.at("kernels").at("difference"), json::object());
  EXPECT_TRUE(primary.at("dram").at("base").is_null());
  EXPECT_EQ(primary.at("dram").at("note"), "not counted");
  EXPECT_EQ(primary.at("predicted_traffic").at("saving_bytes"), 8 * 100 * 8);
  EXPECT_EQ(report.at("series")[2].at("status"), "shown");
  EXPECT_FALSE(report.at("series")[2].contains("memory"));

  ASSERT_EQ(report.at("blocks").size(), 6U * 3 * 6 * 4);  // Rounds, series, quads, positions.
  EXPECT_EQ(report.at("blocks")[0].at("round"), 0);
  EXPECT_TRUE(report.at("blocks")[0].at("before").at("sm_clock_mhz").is_null());
  EXPECT_EQ(report.at("blocks")[0].at("after").at("sm_clock_mhz"), 1980);

  ASSERT_EQ(report.at("excluded").size(), 1U);
  EXPECT_EQ(report.at("excluded")[0].at("arm"), "candidate");
  EXPECT_EQ(report.at("excluded")[0].at("rows"), 1);
  EXPECT_EQ(files.at("excluded.csv"),
            "series,role,round,quad,pos,arm,rep,ns,throttled,cause,reason\n"
            "64x8x100/float32/bias,primary,1,0,0,A,0,77,0,candidate,CRASHED\n");

  ASSERT_EQ(report.at("diagnostics").size(), 3U);
  EXPECT_EQ(report.at("diagnostics")[0].at("region"), "backward");
  EXPECT_NEAR(report.at("diagnostics")[0].at("base_ms").get<double>(), 1.0, 0.01);
  EXPECT_EQ(report.at("diagnostics")[1].at("name"), std::string(kPrimary) + "/chunks=4");
  EXPECT_EQ(report.at("diagnostics")[1].at("chunks"), 4);
  EXPECT_EQ(report.at("diagnostics")[1].at("predicted_add_ops_saved"), 4);
  EXPECT_EQ(report.at("diagnostics")[1].at("predicted_saving_bytes"), 8 * 4 * 100 * 8);
  EXPECT_EQ(report.at("diagnostics")[2].at("absent"), "candidate, OUT_OF_MEMORY: no room");
  EXPECT_FALSE(report.at("diagnostics")[2].contains("L"));
  EXPECT_THAT(files.at("diagnostics.csv"), ::testing::HasSubstr(",diagnostic,"));
}

TEST(ContractJsonTest, ANanThatWasMeasuredIsToldFromNoFigure) {
  const auto rows =
      ContractJson({{"C8", "base", "plain", NAN, 1e-6, "fail", "logp"}, {"C13", "base", "plain", NAN, NAN, "pass", ""}})
          .at("rows");
  EXPECT_EQ(rows[0].at("measured"), "nan");
  EXPECT_EQ(rows[0].at("limit"), 1e-6);
  EXPECT_TRUE(rows[1].at("measured").is_null());
  EXPECT_TRUE(rows[1].at("limit").is_null());
  EXPECT_EQ(ContractRowText({"C13", "base", "plain", NAN, NAN, "fail", "no path"}), "C13 (plain, base): no path");
}

TEST_F(ReportBuilderTest, SamplesAndConfigRecomputeTheVerdict) {
  work_->gain = 0.03;
  const auto files = Run(TestSpec());
  const json report = json::parse(files.at("report.json"));
  const auto samples = verdict::ParseSamples(files.at("samples.csv"));
  ASSERT_TRUE(samples.ok()) << samples.status();
  const auto config = verdict::ConfigFromJson(files.at("report.json"));
  ASSERT_TRUE(config.ok()) << config.status();
  const auto outcome = verdict::Decide(*samples, *config);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->verdict, report.at("verdict"));
  EXPECT_EQ(outcome->stop_look, report.at("stop_look"));
  EXPECT_EQ(outcome->looks[0].series[0].L, report.at("looks")[0].at("series").at(kPrimary).at("L").get<double>());
  for (const json& file : report.at("files")) {
    const std::string& data = files.at(file.at("name").get<std::string>());
    EXPECT_EQ(file.at("sha256"), Sha256Hex(data));
    EXPECT_EQ(file.at("bytes"), data.size());
  }
}

TEST_F(ReportBuilderTest, DiagnosticsAndExcludedRowsAreNoSamplesFile) {
  auto spec = TestSpec();
  spec.mutable_diagnostics()->set_backward_only(true);
  const auto files = Run(spec);
  EXPECT_EQ(verdict::ParseSamples(files.at("diagnostics.csv")).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(verdict::ParseSamples(files.at("excluded.csv")).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ReportBuilderTest, AJobThatFailedEarlyHasAReportToo) {
  work_->contract.push_back({"C2", "candidate", "plain", 0.1, 1e-5, "fail", "grad_weight"});
  const auto files = Run(TestSpec());
  const json report = json::parse(files.at("report.json"));
  EXPECT_EQ(report.at("verdict"), "CONTRACT_FAILED");
  EXPECT_EQ(report.at("reason"), "CANDIDATE_C2");
  EXPECT_EQ(report.at("rule"), 1);
  EXPECT_EQ(report.at("looks").size(), 0U);
  EXPECT_FALSE(report.contains("plan"));
  EXPECT_FALSE(report.contains("stop_look"));
  EXPECT_EQ(report.at("contract").at("passed"), false);
  EXPECT_EQ(report.at("series")[0].at("status"), "no_look");
  EXPECT_EQ(files.at("samples.csv"), "series,role,round,quad,pos,arm,rep,ns,throttled\n");
}

TEST_F(ReportBuilderTest, AJobThatFailedInItsRoundsKeepsThem) {
  work_->on_round = [](int round, int) -> std::optional<WorkFailure> {
    if (round < 2) return std::nullopt;
    return WorkFailure{.cause = "device", .reason = "DEVICE_LOST", .detail = "gone"};
  };
  const auto files = Run(TestSpec());
  const json report = json::parse(files.at("report.json"));
  EXPECT_EQ(report.at("verdict"), "FAILED");
  EXPECT_EQ(report.at("reason"), "DEVICE_LOST");
  EXPECT_EQ(report.at("failure_cause"), "device");
  EXPECT_EQ(report.at("rule"), 2);
  EXPECT_EQ(report.at("rounds").size(), 2U);
  EXPECT_EQ(report.at("excluded").size(), 4U);
  EXPECT_EQ(verdict::ParseSamples(files.at("samples.csv"))->size(), 2U * 3 * 6 * 4 * 3);
}

TEST_F(ReportBuilderTest, ACancelledJobHasAReportWithoutAVerdict) {
  JobServer server(dir_.path(), work_);
  const std::string name = server.Create(TestSpec()).name();
  v1::CancelJobRequest request;
  request.set_name(name);
  ASSERT_TRUE(server.handler().Cancel("ann", request).ok());
  const json report = json::parse(server.Report(name).at("report.json"));
  EXPECT_EQ(report.at("state"), "CANCELLED");
  EXPECT_EQ(report.at("verdict"), "");
  EXPECT_TRUE(report.at("rule").is_null());
}

// cases/reports, number 10: names stay what they were, in a document that a strict parser reads.
TEST_F(ReportBuilderTest, HostileNamesStayDataInTheDocument) {
  const std::string names[] = {"a < b & \"c\" ]]> d", "esc \x1b[31m", std::string("nul \0 in", 8), "non \xEF\xBF\xBE",
                               "rocket \xF0\x9F\x9A\x80"};
  auto spec = TestSpec();
  for (const std::string& name : names) {
    spec.set_display_name(name);
    spec.mutable_primaries(0)->set_display_name(name);
    work_->on_round = [&](int, int attempt) -> std::optional<WorkFailure> {
      if (attempt > 0) return std::nullopt;
      return WorkFailure{.cause = "harness", .reason = "CRASHED", .detail = name + "\xFF"};
    };
    work_->calls.clear();
    const auto files = Run(spec);
    const std::string& text = files.at("report.json");
    const json report = json::parse(text);
    EXPECT_EQ(report.at("display_name"), name);
    EXPECT_EQ(report.at("series")[0].at("display_name"), name);
    EXPECT_EQ(report.at("excluded")[0].at("detail"), name + "\xEF\xBF\xBD");
    EXPECT_EQ(text.find('\x1b'), std::string::npos);  // Escaped: the file can be shown on a terminal.
  }
}

}  // namespace
}  // namespace keval::server
