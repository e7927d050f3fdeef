// Tensor transfers over loopback: plain TCP, keval with a real kevald, and Arrow Flight where there is pyarrow, in
// interleaved rounds. Figures are ratios to plain TCP in the same direction, size and round, so that a busy machine
// slows both; latencies are in microseconds.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/file.h"
#include "base/large_memory.h"
#include "base/number.h"
#include "bench/flight_peer.h"
#include "bench/measurements.h"
#include "bench/process_memory.h"
#include "bench/tcp_peer.h"
#include "keval/client.h"
#include "tests/support/certificates.h"
#include "tests/support/server_process.h"
#include "tests/support/temp_dir.h"

namespace keval::bench {
namespace {

using Json = nlohmann::ordered_json;
using test_support::ServerProcess;

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

struct Flags {
  std::vector<std::int64_t> mib = {16, 128, 1024};
  int rounds = 7;
  int calls = 2000;
  bool json = false;
  bool unix_socket = false;
  std::string python = "python3";
  std::string kevald = ProgramBesideThisOne("kevald");
};

// One of keval's or Flight's transfers, and which of TCP's it is compared with.
struct Contender {
  std::string name;
  bool push = false;
  std::function<absl::StatusOr<absl::Duration>(std::size_t bytes)> run;
};

absl::StatusOr<absl::Duration> Timed(const std::function<absl::Status()>& action) {
  const absl::Time start = absl::Now();
  if (absl::Status status = action(); !status.ok()) return status;
  return absl::Now() - start;
}

// Transfers with a server: tensors of bytes that lie in this process's touched memory.
class KevalTransfers {
 public:
  static absl::StatusOr<KevalTransfers> Connect(const std::string& server, int bulk_connections,
                                                absl::Span<std::byte> memory, ConnectionOptions options = {}) {
    options.server = server;
    options.bulk_connections = bulk_connections;
    absl::StatusOr<Client> client = Client::Connect(std::move(options));
    if (!client.ok()) return client.status();
    return KevalTransfers(*std::move(client), memory);
  }

  const Client& client() const { return client_; }

  absl::StatusOr<v1::TensorInfo> Put(std::size_t bytes) const {
    return client_.PutTensor({DType::kFloat32, {static_cast<std::int64_t>(bytes / 4)}, {}, memory_.data()});
  }

  absl::StatusOr<absl::Duration> Push(std::size_t bytes) const {
    absl::StatusOr<v1::TensorInfo> info;
    auto took = Timed([&] {
      info = Put(bytes);
      return info.status();
    });
    if (!took.ok()) return took;
    if (absl::Status status = client_.DeleteTensor(info->handle()); !status.ok()) return status;
    return took;
  }

  absl::StatusOr<absl::Duration> Pull(std::size_t bytes) {
    if (stored_bytes_ != bytes) {
      if (!stored_.empty()) static_cast<void>(client_.DeleteTensor(stored_));
      const auto info = Put(bytes);
      if (!info.ok()) return info.status();
      stored_ = info->handle();
      stored_bytes_ = bytes;
    }
    return Timed([&] { return client_.GetTensorInto(stored_, memory_.subspan(0, bytes)).status(); });
  }

  void Forget() {
    if (!stored_.empty()) static_cast<void>(client_.DeleteTensor(stored_));
    stored_.clear();
    stored_bytes_ = 0;
  }

 private:
  KevalTransfers(Client client, absl::Span<std::byte> memory) : client_(std::move(client)), memory_(memory) {}

  Client client_;
  absl::Span<std::byte> memory_;
  std::string stored_;
  std::size_t stored_bytes_ = 0;
};

double GbPerSecond(std::size_t bytes, absl::Duration duration) {
  return static_cast<double>(bytes) / absl::ToDoubleSeconds(duration) / 1e9;
}

void Note(const std::string& text) { std::fputs(absl::StrCat(text, "\n").c_str(), stderr); }

// Rounds of one size: every contender once in each, TCP first.
absl::StatusOr<Json> MeasureSize(TcpPeer* tcp, absl::Span<std::byte> memory, const std::vector<Contender>& contenders,
                                 const Flags& flags, std::int64_t mib) {
  const auto bytes = static_cast<std::size_t>(mib * kMiB);
  std::map<std::string, std::vector<double>> figures;
  // The first round fills pools and windows and isn't counted.
  for (int round = 0; round <= flags.rounds; ++round) {
    const auto tcp_push = tcp->Push(memory.subspan(0, bytes));
    if (!tcp_push.ok()) return tcp_push.status();
    const auto tcp_pull = tcp->Pull(memory.subspan(0, bytes));
    if (!tcp_pull.ok()) return tcp_pull.status();
    if (round > 0) {
      figures["tcp_push_gb_per_s"].push_back(GbPerSecond(bytes, *tcp_push));
      figures["tcp_pull_gb_per_s"].push_back(GbPerSecond(bytes, *tcp_pull));
    }
    for (const Contender& contender : contenders) {
      const auto took = contender.run(bytes);
      if (!took.ok()) {
        return absl::Status(took.status().code(), absl::StrCat(contender.name, ": ", took.status().message()));
      }
      if (round > 0) {
        figures[contender.name].push_back(absl::FDivDuration(contender.push ? *tcp_push : *tcp_pull, *took));
      }
    }
    Note(absl::StrCat(mib, " MiB: round ", round, " of ", flags.rounds));
  }
  Json result = {{"mib", mib}};
  for (const char* name : {"tcp_push_gb_per_s", "tcp_pull_gb_per_s"}) result[name] = Summary(figures[name]);
  for (const Contender& contender : contenders) result[contender.name] = Summary(figures[contender.name]);
  return result;
}

// Latencies in microseconds of calls that carry next to nothing.
absl::StatusOr<std::vector<double>> MeasureCalls(const Client& client, const std::string& handle, int calls,
                                                 const std::function<bool()>& go_on) {
  std::vector<double> microseconds;
  for (int i = 0; i < calls && go_on(); ++i) {
    const auto took = Timed([&] { return client.StatTensor(handle).status(); });
    if (!took.ok()) return took.status();
    microseconds.push_back(absl::ToDoubleMicroseconds(*took));
  }
  return microseconds;
}

// Unary latency alone and while 1 GiB (or the largest size) is being pushed; a figure for each of several repetitions.
absl::StatusOr<Json> MeasureLatency(const KevalTransfers& control, const KevalTransfers& bulk, std::size_t bulk_bytes,
                                    const Flags& flags) {
  const auto info = control.Put(4);
  if (!info.ok()) return info.status();
  std::vector<double> p50;
  std::vector<double> p99;
  std::vector<double> under_bulk;
  const auto warm = MeasureCalls(control.client(), info->handle(), flags.calls, [] { return true; });
  if (!warm.ok()) return warm.status();
  for (int i = 0; i < std::max(flags.rounds, 1); ++i) {
    const auto idle = MeasureCalls(control.client(), info->handle(), flags.calls, [] { return true; });
    if (!idle.ok()) return idle.status();
    p50.push_back(Quantile(*idle, 0.5));
    p99.push_back(Quantile(*idle, 0.99));
    std::atomic<bool> pushing = true;
    absl::Status pushed;
    std::thread pusher([&] {
      const absl::Time until = absl::Now() + absl::Seconds(1);
      while (pushed.ok() && absl::Now() < until) pushed = bulk.Push(bulk_bytes).status();
      pushing = false;
    });
    const auto busy = MeasureCalls(control.client(), info->handle(), 1'000'000, [&] { return pushing.load(); });
    pusher.join();
    if (!pushed.ok()) return pushed;
    if (!busy.ok()) return busy.status();
    if (busy->empty()) return absl::UnavailableError("no call ended while tensors were pushed");
    under_bulk.push_back(Quantile(*busy, 0.99));
  }
  return Json{
      {"unary_p50_us", Summary(p50)}, {"unary_p99_us", Summary(p99)}, {"unary_p99_under_bulk_us", Summary(under_bulk)}};
}

// How far the server's memory rises above the tensor that it stores, in a push of `bytes` into a fresh server.
absl::StatusOr<Json> MeasurePeak(const Flags& flags, absl::Span<std::byte> memory, std::size_t bytes) {
  std::vector<double> over;
  for (int i = 0; i < 3; ++i) {
    const testing::TempDir folder;
    auto server = ServerProcess::Start({.program = flags.kevald, .folder = folder.path(), .arguments = {}});
    if (!server.ok()) return server.status();
    const auto transfers = KevalTransfers::Connect(server->control(), 2, memory);
    if (!transfers.ok()) return transfers.status();
    if (const auto small = transfers->Put(4); !small.ok()) return small.status();
    if (absl::Status status = ResetPeak(server->pid()); !status.ok()) return Absent(std::string(status.message()));
    const auto before = ReadResident(server->pid());
    const auto info = transfers->Put(bytes);
    if (!info.ok()) return info.status();
    const auto after = ReadResident(server->pid());
    if (!before.ok() || !after.ok()) return Absent("the system doesn't tell a process's memory");
    over.push_back(static_cast<double>(after->peak - before->now - static_cast<std::int64_t>(bytes)) /
                   static_cast<double>(kMiB));
  }
  return Summary(over);
}

absl::StatusOr<Json> Measure(const Flags& flags) {
  const auto largest = static_cast<std::size_t>(*std::max_element(flags.mib.begin(), flags.mib.end()) * kMiB);
  auto tcp = TcpPeer::Start(largest);  // Forks: before anything of gRPC.
  if (!tcp.ok()) return tcp.status();
  const LargeMemory owned = AllocateLarge(largest);
  if (owned == nullptr) return absl::ResourceExhaustedError("no memory for the largest size");
  std::memset(owned.get(), 3, largest);
  const absl::Span<std::byte> memory(owned.get(), largest);

  const testing::TempDir folder;
  std::vector<std::string> arguments;
  if (flags.unix_socket) {
    arguments = {"--listen",         absl::StrCat("unix:", folder.path(), "/control"),
                 "--bulk_listen",    absl::StrCat("unix:", folder.path(), "/bulk"),
                 "--advertise_bulk", absl::StrCat("unix:", folder.path(), "/bulk"),
                 "--health_listen",  "none"};
  }
  auto server = ServerProcess::Start({.program = flags.kevald, .folder = folder.path(), .arguments = arguments});
  if (!server.ok()) return server.status();
  auto one = KevalTransfers::Connect(server->control(), 1, memory);
  if (!one.ok()) return one.status();
  auto two = KevalTransfers::Connect(server->control(), 2, memory);
  if (!two.ok()) return two.status();
  // The same over mutual TLS.
  const testing::TempDir tls_folder;
  test_support::Authority authority(tls_folder.path(), "authority");
  const auto shown = authority.Issue("server", "server", "IP:127.0.0.1");
  ConnectionOptions own;
  own.tls_ca = authority.ca();
  own.tls_cert = shown.cert;
  own.tls_key = shown.key;
  if (!authority.status().ok()) return authority.status();
  auto tls_server = ServerProcess::Start(
      {.program = flags.kevald,
       .folder = tls_folder.path(),
       .arguments = {"--tls_cert", shown.cert, "--tls_key", shown.key, "--tls_client_ca", authority.ca()}});
  if (!tls_server.ok()) return tls_server.status();
  auto mutual = KevalTransfers::Connect(tls_server->control(), 2, memory, own);
  if (!mutual.ok()) return mutual.status();
  auto flight = FlightPeer::Start(flags.python, KEVAL_SOURCE_DIR "/bench/flight_transport.py");

  std::vector<Contender> contenders = {
      {"pull_1ch", false, [&](std::size_t bytes) { return one->Pull(bytes); }},
      {"push_1ch", true, [&](std::size_t bytes) { return one->Push(bytes); }},
      {"push_2ch", true, [&](std::size_t bytes) { return two->Push(bytes); }},
      {"mtls_push_2ch", true, [&](std::size_t bytes) { return mutual->Push(bytes); }},
  };
  if (flight.ok()) {
    contenders.push_back({"flight_pull", false, [&](std::size_t bytes) { return (*flight)->Pull(bytes); }});
    contenders.push_back({"flight_push", true, [&](std::size_t bytes) { return (*flight)->Push(bytes); }});
  }
  Json document = {{"rounds", flags.rounds},
                   {"cores", std::thread::hardware_concurrency()},
                   {"flight_version", flight.ok() ? Json((*flight)->version()) : Json(nullptr)},
                   {"sizes", Json::array()}};
  for (const std::int64_t mib : flags.mib) {
    auto size = MeasureSize(tcp->get(), memory, contenders, flags, mib);
    if (!size.ok()) return size.status();
    if (!flight.ok()) {
      for (const char* name : {"flight_pull", "flight_push"}) {
        (*size)[name] = Absent(std::string(flight.status().message()));
      }
    }
    document["sizes"].push_back(*std::move(size));
  }
  one->Forget();
  const auto latency = MeasureLatency(*one, *two, largest, flags);
  if (!latency.ok()) return latency.status();
  document.update(*latency);
  const auto peak = MeasurePeak(flags, memory, largest);
  if (!peak.ok()) return peak.status();
  document["server_peak_over_tensor_mib"] = *peak;
  return document;
}

std::string Table(const Json& document) {
  std::string text;
  const auto row = [&text](const std::string& name, const Json& figure) {
    if (!figure.is_object()) return;
    if (figure.contains("absent")) {
      absl::StrAppend(&text, "  ", name, ": absent, ", figure["absent"].get<std::string>(), "\n");
      return;
    }
    const auto number = [&figure](const char* key) { return SignificantText(figure[key].get<double>(), 4); };
    absl::StrAppend(&text, "  ", name, ": ", number("median"), "  [", number("low"), ", ", number("high"), "]\n");
  };
  for (const Json& size : document["sizes"]) {
    absl::StrAppend(&text, size["mib"].get<std::int64_t>(), " MiB, ratios to plain TCP\n");
    for (const auto& [name, figure] : size.items()) row(name, figure);
  }
  text += "calls and memory\n";
  for (const auto& [name, figure] : document.items()) row(name, figure);
  return text;
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Tensor transfers over loopback, as ratios to plain TCP in the same rounds.", "bench_transport");
  app.add_option("--mib", flags.mib, "sizes")->delimiter(',')->check(CLI::Range(1, 1 << 20));
  app.add_option("--rounds", flags.rounds, "for each size; one more comes first, uncounted")
      ->check(CLI::Range(1, 1000));
  app.add_option("--calls", flags.calls, "small calls for each latency figure")->check(CLI::Range(100, 1'000'000));
  app.add_flag("--json", flags.json, "print one JSON document");
  app.add_flag("--unix", flags.unix_socket, "keval over Unix sockets");
  app.add_option("--python", flags.python, "interpreter for Arrow Flight");
  app.add_option("--kevald", flags.kevald, "the server; default beside this program");
  CLI11_PARSE(app, argc, argv);
  if (!TuneAllocator()) Note("the allocator refused its settings");
  const auto document = Measure(flags);
  if (!document.ok()) {
    Note(document.status().ToString());
    return 1;
  }
  const std::string text = flags.json ? document->dump(2) + "\n" : Table(*document);
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() ? 0 : 1;
}

}  // namespace
}  // namespace keval::bench

int main(int argc, char** argv) { return keval::bench::Main(argc, argv); }
