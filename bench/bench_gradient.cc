// StreamGradient over loopback against the same call in process, in interleaved rounds: what the transport adds to the
// operator.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
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
#include "bench/measurements.h"
#include "core/linear_logp/engine.h"
#include "keval/client.h"
#include "tests/support/server_process.h"
#include "tests/support/temp_dir.h"

namespace keval::bench {
namespace {

using Json = nlohmann::ordered_json;

struct Flags {
  std::string device = "cpu";
  std::int64_t num_tokens = 2048;
  std::int64_t hidden_size = 512;
  std::int64_t vocab_size = 16384;
  bool bfloat16 = false;
  int rounds = 5;
  bool json = false;
  std::string kevald = ProgramBesideThisOne("kevald");
};

// Zeroed memory: the operator takes as long whatever is in it.
struct Operand {
  TensorSpec spec;
  LargeMemory memory;
};

absl::StatusOr<Operand> MakeOperand(DType dtype, std::vector<std::int64_t> shape) {
  Operand operand{{dtype, std::move(shape)}, nullptr};
  const auto bytes = NumBytes("operand", operand.spec);
  if (!bytes.ok()) return bytes.status();
  operand.memory = AllocateLarge(static_cast<std::size_t>(*bytes));
  if (operand.memory == nullptr) return absl::ResourceExhaustedError("no memory for the operands");
  std::fill_n(operand.memory.get(), *bytes, std::byte{0});
  return operand;
}

linear_logp::HostTensor HostView(const Operand& operand) { return {operand.spec, operand.memory.get(), nullptr}; }
TensorView ClientView(const Operand& operand) {
  return {operand.spec.dtype, operand.spec.shape, {}, operand.memory.get()};
}

struct Operands {
  Operand hidden;
  Operand weight;
  Operand targets;
  Operand grad_logp;
};

absl::StatusOr<Operands> MakeOperands(const Flags& flags) {
  const DType dtype = flags.bfloat16 ? DType::kBFloat16 : DType::kFloat32;
  auto hidden = MakeOperand(dtype, {flags.num_tokens, flags.hidden_size});
  auto weight = MakeOperand(dtype, {flags.vocab_size, flags.hidden_size});
  auto targets = MakeOperand(DType::kInt64, {flags.num_tokens});
  auto grad_logp = MakeOperand(DType::kFloat32, {flags.num_tokens});
  for (const auto* operand : {&hidden, &weight, &targets, &grad_logp}) {
    if (!operand->ok()) return operand->status();
  }
  return Operands{*std::move(hidden), *std::move(weight), *std::move(targets), *std::move(grad_logp)};
}

absl::StatusOr<Json> Measure(const Flags& flags) {
  const auto operands = MakeOperands(flags);
  if (!operands.ok()) return operands.status();
  const auto device = linear_logp::ParseDevice(flags.device);
  if (!device.ok()) return device.status();
  auto engine = linear_logp::Engine::Create(*device);
  if (!engine.ok()) return engine.status();
  const testing::TempDir folder;
  auto server = test_support::ServerProcess::Start({.program = flags.kevald, .folder = folder.path(), .arguments = {}});
  if (!server.ok()) return server.status();
  const auto client = Client::Connect(server->control());
  if (!client.ok()) return client.status();

  linear_logp::TensorSpecs specs{.hidden = operands->hidden.spec,
                                 .weight = operands->weight.spec,
                                 .targets = operands->targets.spec,
                                 .grad_logp = operands->grad_logp.spec};
  const auto problem = linear_logp::ValidateProblem(specs, !device->cuda);
  if (!problem.ok()) return problem.status();
  linear_logp::Inputs inputs;
  inputs.hidden = HostView(operands->hidden);
  inputs.weight = HostView(operands->weight);
  inputs.targets = HostView(operands->targets);
  inputs.grad_logp = HostView(operands->grad_logp);
  GradientParams params;
  params.options.set_device(flags.device);
  params.hidden = ClientView(operands->hidden);
  params.weight = ClientView(operands->weight);
  params.targets = ClientView(operands->targets);
  params.grad_logp = ClientView(operands->grad_logp);

  std::vector<double> in_process;
  std::vector<double> streamed;
  std::vector<double> ratios;
  for (int round = 0; round <= flags.rounds; ++round) {  // The first warms up and isn't counted.
    absl::Time start = absl::Now();
    const auto outputs = (*engine)->Gradient(*problem, {}, {}, inputs, nullptr);
    const absl::Duration direct = absl::Now() - start;
    if (!outputs.ok()) return outputs.status();
    start = absl::Now();
    const auto result = client->Gradient(params);
    const absl::Duration over_wire = absl::Now() - start;
    if (!result.ok()) return result.status();
    if (round == 0) continue;
    in_process.push_back(absl::ToDoubleMilliseconds(direct));
    streamed.push_back(absl::ToDoubleMilliseconds(over_wire));
    ratios.push_back(absl::FDivDuration(over_wire, direct));
  }
  return Json{{"device", flags.device},
              {"num_tokens", flags.num_tokens},
              {"hidden_size", flags.hidden_size},
              {"vocab_size", flags.vocab_size},
              {"dtype", flags.bfloat16 ? "bfloat16" : "float32"},
              {"in_process_ms", Summary(in_process)},
              {"stream_ms", Summary(streamed)},
              {"stream_over_in_process", Summary(ratios)}};
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("StreamGradient over loopback against the same call in process.", "bench_gradient");
  app.add_option("--device", flags.device, "cpu or cuda:N");
  app.add_option("--num_tokens", flags.num_tokens, "N")->check(CLI::PositiveNumber);
  app.add_option("--hidden_size", flags.hidden_size, "D")->check(CLI::PositiveNumber);
  app.add_option("--vocab_size", flags.vocab_size, "V")->check(CLI::PositiveNumber);
  app.add_flag("--bfloat16", flags.bfloat16, "operands in bfloat16; default float32");
  app.add_option("--rounds", flags.rounds, "one more comes first, uncounted")->check(CLI::Range(1, 1000));
  app.add_flag("--json", flags.json, "print one JSON document");
  app.add_option("--kevald", flags.kevald, "the server; default beside this program");
  CLI11_PARSE(app, argc, argv);
  if (!TuneAllocator()) std::fputs("the allocator refused its settings\n", stderr);
  const auto document = Measure(flags);
  if (!document.ok()) {
    std::fputs(absl::StrCat(document.status().ToString(), "\n").c_str(), stderr);
    return 1;
  }
  const auto median = [&](const char* name) { return SignificantText((*document)[name]["median"].get<double>(), 4); };
  const std::string text =
      flags.json ? document->dump(2) + "\n"
                 : absl::StrCat("in process ", median("in_process_ms"), " ms, streamed ", median("stream_ms"),
                                " ms: ratio ", median("stream_over_in_process"), "\n");
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() ? 0 : 1;
}

}  // namespace
}  // namespace keval::bench

int main(int argc, char** argv) { return keval::bench::Main(argc, argv); }
