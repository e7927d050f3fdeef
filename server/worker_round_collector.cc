#include "server/worker_round_collector.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/sha256.h"
#include "server/worker/arm_calls.h"
#include "server/worker/evidence_calls.h"
#include "server/worker/host_load.h"
#include "server/worker/pilot_calls.h"
#include "server/worker/quad_calls.h"
#include "server/worker/round_crews.h"
#include "server/worker/worker_crew.h"

namespace keval::server {
namespace {

using std::chrono::steady_clock;
using worker::Draw;
using worker::Purpose;
using worker::Reply;
using worker::Request;
using worker::Seat;
using worker::Work;
using worker::WorkerCrew;

// Hexadecimal; "" where the file can't be read.
std::string FileSha256(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return "";
  Sha256 hash;
  std::vector<char> piece(std::size_t{1} << 20);
  do {
    file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    hash.Update(piece.data(), static_cast<std::size_t>(file.gcount()));
  } while (file);
  return hash.FinishHex();
}

constexpr int kContractLimitBlocks = 5;  // Its rows may all come at its end.

std::vector<Seat> Shuffled(std::vector<Seat> seats, std::uint64_t bits) {
  for (std::size_t left = seats.size(); left > 1; --left) {
    std::swap(seats[left - 1], seats[bits % left]);
    bits = worker::Mix(bits);
  }
  return seats;
}

DispatchRecord DispatchOf(const worker::Dispatch& dispatch) {
  return {dispatch.variant(), dispatch.path(), dispatch.reason(), dispatch.fallback()};
}

absl::Status CollectSeries(const JobArms& arms, const SeriesRun& run, int round, int index, WorkerCrew* crew,
                           RoundData* data) {
  const Seat second = run.role == verdict::Role::kControl ? Seat::kBaseCopy : Seat::kCandidate;
  Work work = {run.shape, DiagnosticRegion::kForwardBackward, Draw(arms.seed, Purpose::kInputs, round, index), true};
  const std::vector<Seat> seats =
      Shuffled({Seat::kBase, second}, Draw(arms.seed, Purpose::kPrepareOrder, round, index));
  std::map<Seat, worker::Prepared> prepared;
  for (const Seat seat : seats) {
    absl::StatusOr<worker::Prepared> one = worker::PrepareInTurn(arms, work, seat, crew);
    if (!one.ok()) {
      return one.status();
    }
    prepared[seat] = *std::move(one);
    if (arms.sequential) {
      if (absl::Status status = worker::ReleaseArm(seat, crew); !status.ok()) {
        return status;
      }
    }
  }
  const worker::Prepared& base = prepared[Seat::kBase];
  const worker::Prepared& other = prepared[second];
  data->evidence.push_back(
      {run.series, base.peak_bytes(), other.peak_bytes(), DispatchOf(base.dispatch()), DispatchOf(other.dispatch())});
  work.measure_peak = false;
  const worker::QuadPlan plan = {run.series,
                                 run.role,
                                 round,
                                 run.quads,
                                 run.timed_repetitions,
                                 run.discarded_repetitions,
                                 Draw(arms.seed, Purpose::kQuadOrder, round, index),
                                 second,
                                 work};
  absl::Status status = worker::CollectQuads(arms, plan, crew, &data->samples, &data->blocks);
  for (const Seat seat : seats) {
    if (status.ok() && !arms.sequential) {
      status = worker::ReleaseArm(seat, crew);
    }
  }
  return status;
}

absl::Status CollectCrew(const JobArms& arms, const std::vector<SeriesRun>& series, const worker::RoundCrew& part,
                         int round, WorkerCrew* crew, RoundData* data) {
  const auto first = static_cast<int>(part.series.front());
  absl::Status status = crew->Start(Shuffled(part.seats, Draw(arms.seed, Purpose::kStartOrder, round, first)),
                                    Draw(arms.seed, Purpose::kCpus, round, 0));
  for (std::size_t i = 0; i < part.series.size() && status.ok(); ++i) {
    const std::size_t index = part.series[i];
    worker::TellTurn(arms, series[index].series, index, series.size());
    status = CollectSeries(arms, series[index], round, static_cast<int>(index), crew, data);
  }
  return status;
}

ContractRowData RowOf(const worker::ContractRow& row) {
  return {row.id(), row.arm(), row.case_name(), row.measured(), row.limit(), row.status(), row.why()};
}

// Both arms run in one process, the candidate's, which marks whose turn it is.
absl::Status CollectContract(const JobArms& arms, WorkerCrew* crew,
                             const std::function<void(const ContractRowData&)>& on_row,
                             std::vector<ContractRowData>* rows) {
  constexpr Seat seat = Seat::kCandidate;
  if (absl::Status status = crew->Start({seat}); !status.ok()) {
    return status;
  }
  Request request;
  worker::Contract& contract = *request.mutable_contract();
  contract.set_base_variant(arms.base_variant);
  contract.set_candidate_variant(arms.candidate_variant);
  contract.set_seed(arms.seed);
  contract.set_device(arms.device);
  contract.set_threads(arms.worker_threads);
  absl::StatusOr<WorkerCrew::Turn> turn = crew->TakeTurn();
  if (!turn.ok()) {
    return turn.status();
  }
  crew->Send(seat, request);
  for (;;) {
    absl::StatusOr<Reply> reply = crew->Next(seat, kContractLimitBlocks * crew->hang_timeout());
    if (!reply.ok()) {
      return reply.status();
    }
    if (reply->has_contract_done()) {
      return absl::OkStatus();
    }
    if (!reply->has_contract_row()) {
      return crew->FailAsHarness(seat, "answered something else to a contract check");
    }
    rows->push_back(RowOf(reply->contract_row()));
    if (on_row != nullptr) {
      on_row(rows->back());
    }
  }
}

// Calls `visit` for both arms of each series that isn't a control (that would be base twice: nothing new), until it
// fails.
absl::Status ForEachArm(const std::vector<SeriesRun>& series, ProfileData* data,
                        const std::function<absl::Status(int index, Seat seat, ProfileData::Arm* arm)>& visit) {
  for (std::size_t i = 0; i < series.size(); ++i) {
    if (series[i].role == verdict::Role::kControl) {
      continue;
    }
    auto& [base, candidate] = data->by_series[series[i].series];
    for (const auto& [seat, arm] : {std::pair(Seat::kBase, &base), std::pair(Seat::kCandidate, &candidate)}) {
      if (absl::Status status = visit(static_cast<int>(i), seat, arm); !status.ok()) {
        return status;
      }
    }
  }
  return absl::OkStatus();
}

WorkerCrew::Options CrewOptions(const WorkerRoundCollector::Options& options) {
  return {options.worker_program, options.oom_counters,
          std::chrono::milliseconds(std::llround(options.start_timeout_seconds * 1000))};
}

}  // namespace

WorkerRoundCollector::WorkerRoundCollector(Options options) : options_(std::move(options)) {
  if (options_.worker_program.empty()) {
    options_.worker_program = ProgramBesideThisOne("keval-worker");
  }
}

absl::StatusOr<Collected<PilotData>> WorkerRoundCollector::Pilot(const JobArms& arms,
                                                                 const std::vector<SeriesRun>& series,
                                                                 DeviceLease* lease, const Check& check) {
  WorkerCrew crew(CrewOptions(options_), arms, lease, check);
  PilotData data;
  const absl::Status status = worker::CollectPilot(arms, series, &crew, &data);
  return crew.Finish(status, std::move(data));
}

absl::StatusOr<Collected<RoundData>> WorkerRoundCollector::Round(const JobArms& arms,
                                                                 const std::vector<SeriesRun>& series, int round,
                                                                 DeviceLease* lease, const Check& check) {
  RoundData data;
  double foreign_core_seconds = 0;
  for (const worker::RoundCrew& part : worker::CrewsOfRound(arms.device, series)) {
    const auto begin = steady_clock::now();
    const worker::HostLoad host;
    WorkerCrew crew(CrewOptions(options_), arms, lease, check);
    if (const absl::Status status = CollectCrew(arms, series, part, round, &crew, &data); !status.ok()) {
      absl::StatusOr<Collected<RoundData>> result = crew.Finish(status, RoundData());
      if (result.ok()) {
        std::get<WorkFailure>(*result).partial = std::move(data.samples);
      }
      return result;
    }
    const double seconds = std::chrono::duration<double>(steady_clock::now() - begin).count();
    foreign_core_seconds += seconds * host.ForeignCores(crew.process_ids());
    data.seconds += seconds;
    data.device_seconds += crew.device_seconds();
  }
  data.foreign_cpu_cores = foreign_core_seconds / data.seconds;
  return Collected<RoundData>(std::move(data));
}

absl::StatusOr<Collected<std::vector<ContractRowData>>> WorkerRoundCollector::Contract(
    const JobArms& arms, const std::function<void(const ContractRowData&)>& row, DeviceLease* lease,
    const Check& check) {
  WorkerCrew crew(CrewOptions(options_), arms, lease, check);
  std::vector<ContractRowData> rows;
  const absl::Status status = CollectContract(arms, &crew, row, &rows);
  return crew.Finish(status, std::move(rows));
}

absl::StatusOr<Collected<ProfileData>> WorkerRoundCollector::Profile(const JobArms& arms,
                                                                     const std::vector<SeriesRun>& series,
                                                                     DeviceLease* lease, const Check& check) {
  ProfileData data;
  {
    WorkerCrew crew(CrewOptions(options_), arms, lease, check);
    absl::Status status = crew.Start({Seat::kBase, Seat::kCandidate});
    if (status.ok()) {
      status = ForEachArm(series, &data, [&](int index, Seat seat, ProfileData::Arm* arm) {
        worker::TellTurn(arms, series[index].series, static_cast<std::size_t>(index), series.size());
        absl::StatusOr<ProfileData::Arm> counts = worker::CollectCounts(arms, series[index], index, seat, &crew);
        if (!counts.ok()) {
          return counts.status();
        }
        *arm = *std::move(counts);
        return absl::OkStatus();
      });
    }
    if (!status.ok()) {
      return crew.Finish(status, std::move(data));
    }
  }
  if (absl::Status status = CountDram(arms, series, lease, check, &data); !status.ok()) {
    return status;
  }
  return Collected<ProfileData>(std::move(data));
}

// Other processes than those that traced the kernels; what fails there leaves a note and the rest of the profile.
absl::Status WorkerRoundCollector::CountDram(const JobArms& arms, const std::vector<SeriesRun>& series,
                                             DeviceLease* lease, const Check& check, ProfileData* data) const {
  if (arms.device == "cpu") {
    return ForEachArm(series, data, [](int, Seat, ProfileData::Arm* arm) {
      arm->dram.note = "a CPU's memory traffic is not counted";
      return absl::OkStatus();
    });
  }
  WorkerCrew crew(CrewOptions(options_), arms, lease, check);
  absl::Status status = crew.Start({Seat::kBase, Seat::kCandidate});
  return ForEachArm(series, data, [&](int index, Seat seat, ProfileData::Arm* arm) {
    if (status.ok()) {
      absl::StatusOr<DramCount> dram = worker::CollectDram(arms, series[index], index, seat, &crew);
      status = dram.status();
      if (status.ok()) {
        arm->dram = *std::move(dram);
      }
    }
    if (!status.ok() && !crew.failure().has_value()) {
      return status;  // `check` spoke.
    }
    if (!status.ok()) {
      arm->dram.note = crew.failure()->detail;
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<Collected<DiagnosticsData>> WorkerRoundCollector::Diagnose(const JobArms& arms,
                                                                          const std::vector<DiagnosticRun>& runs,
                                                                          DeviceLease* lease, const Check& check) {
  constexpr std::size_t kMostFailures = 3;
  DiagnosticsData data;
  std::unique_ptr<WorkerCrew> crew;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (data.absent.size() >= kMostFailures) {
      data.absent[runs[i].name] = absl::StrCat("not tried after ", kMostFailures, " others had failed");
      continue;
    }
    worker::TellTurn(arms, runs[i].name, i, runs.size());
    const std::size_t before = data.samples.size();
    absl::Status status;
    if (crew == nullptr) {
      crew = std::make_unique<WorkerCrew>(CrewOptions(options_), arms, lease, check);
      status = crew->Start({Seat::kBase, Seat::kCandidate});
    }
    if (status.ok()) {
      status = worker::CollectDiagnostic(arms, runs[i], static_cast<int>(i), crew.get(), &data.samples);
    }
    if (status.ok()) {
      continue;
    }
    if (!crew->failure().has_value()) {
      return status;  // `check` spoke.
    }
    data.samples.resize(before);
    data.absent[runs[i].name] =
        absl::StrCat(crew->failure()->cause, ", ", crew->failure()->reason, ": ", crew->failure()->detail);
    crew.reset();
  }
  return Collected<DiagnosticsData>(std::move(data));
}

absl::StatusOr<Collected<std::map<std::string, std::string>>> WorkerRoundCollector::Environment(const JobArms& arms,
                                                                                                const Check& check) {
  WorkerCrew crew(CrewOptions(options_), arms, nullptr, check);
  std::map<std::string, std::string> facts;
  absl::Status status = crew.Start({Seat::kBase});
  if (status.ok()) {
    Request request;
    request.mutable_describe_environment();
    absl::StatusOr<Reply> reply = crew.Ask(Seat::kBase, request, crew.hang_timeout());
    if (!reply.ok()) {
      status = reply.status();
    } else if (!reply->has_environment()) {
      status = crew.FailAsHarness(Seat::kBase, "answered something else to a description");
    } else {
      facts.insert(reply->environment().facts().begin(), reply->environment().facts().end());
      // Both arms are variants of this one program.
      if (std::string hash = FileSha256(options_.worker_program); !hash.empty()) facts["worker_sha256"] = hash;
    }
  }
  return crew.Finish(status, std::move(facts));
}

}  // namespace keval::server
