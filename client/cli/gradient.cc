// keval gradient --in IN.safetensors --out OUT.safetensors: logp and gradients of tensors in a file.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/field_error.h"
#include "base/number.h"
#include "base/shape.h"
#include "base/text.h"
#include "client/cli/commands.h"
#include "client/cli/exit_code.h"
#include "client/cli/flags.h"
#include "client/cli/proto_json.h"
#include "client/cli/usage_error.h"
#include "client/tensor_file/safetensors.h"
#include "core/verdict/json.h"

namespace keval::cli {
namespace {

using Json = nlohmann::ordered_json;
using tensor_file::NamedTensor;

constexpr std::int64_t kMaxPrintedValues = 4096;
constexpr std::int64_t kMaxPrintedLineValues = 8;

struct GradientFlags {
  std::string in;
  std::string out;
  v1::LinearLogpOptions options;
  std::vector<v1::Want> want;
};

// Puts the file's tensors where they belong; INVALID_ARGUMENT naming one that no operand is called after, or an operand
// that is missing.
absl::Status TakeOperands(const std::string& path, const std::vector<NamedTensor>& tensors, GradientParams* params) {
  const std::map<std::string, Operand*> operands = {{"hidden", &params->hidden},
                                                    {"weight", &params->weight},
                                                    {"bias", &params->bias},
                                                    {"targets", &params->targets},
                                                    {"grad_logp", &params->grad_logp}};
  for (const NamedTensor& named : tensors) {
    const auto found = operands.find(named.name);
    if (found == operands.end()) {
      return InvalidField(named.name, "a tensor of this name",
                          "left out: a gradient takes hidden, weight, bias, targets, grad_logp");
    }
    *found->second = Operand(named.tensor);
  }
  for (const char* name : {"hidden", "weight", "targets"}) {
    if (!operands.at(name)->given()) {
      return InvalidField(name, "what is left out", absl::StrCat("in ", PrintableText(path)));
    }
  }
  if (!params->grad_logp.given() && !params->want.empty()) {
    return InvalidField("want", "a gradient", "left out where the file has no grad_logp");
  }
  return absl::OkStatus();
}

std::vector<NamedTensor> TakeResults(GradientResult* result) {
  std::vector<NamedTensor> tensors;
  tensors.push_back({"logp", std::move(result->logp)});
  if (result->grad_hidden) tensors.push_back({"grad_hidden", *std::move(result->grad_hidden)});
  if (result->grad_weight) tensors.push_back({"grad_weight", *std::move(result->grad_weight)});
  if (result->grad_bias) tensors.push_back({"grad_bias", *std::move(result->grad_bias)});
  return tensors;
}

std::int64_t CountNonFinite(const Tensor& tensor) {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < tensor.num_elements(); ++i) count += std::isfinite(tensor.At(i)) ? 0 : 1;
  return count;
}

Json ResultJson(const std::string& out, const GradientResult& result, const std::vector<NamedTensor>& tensors) {
  Json document = {{"out", PrintableText(out)},
                   {"dispatch", ProtoToJson(result.dispatch)},
                   {"timing", ProtoToJson(result.timing)},
                   {"tensors", Json::object()}};
  for (const NamedTensor& named : tensors) {
    document["tensors"][named.name] = {{"dtype", std::string(DTypeName(named.tensor.dtype()))},
                                       {"shape", named.tensor.shape()},
                                       {"non_finite", CountNonFinite(named.tensor)}};
  }
  // Values of logp, flattened, where they are few enough to read.
  const Tensor& logp = tensors.front().tensor;
  if (logp.num_elements() <= kMaxPrintedValues) {
    document["logp"] = Json::array();
    for (std::int64_t i = 0; i < logp.num_elements(); ++i) {
      document["logp"].push_back(verdict::NumberToJson(logp.At(i)));
    }
  }
  return document;
}

std::string ResultText(const std::string& out, const GradientResult& result, const std::vector<NamedTensor>& tensors) {
  const v1::Dispatch& dispatch = result.dispatch;
  std::string text = absl::StrCat(PrintableText(dispatch.variant(), 128), ": ", PrintableText(dispatch.path(), 256),
                                  dispatch.reason().empty() ? "" : " (", PrintableText(dispatch.reason(), 512),
                                  dispatch.reason().empty() ? "" : ")", ", ", dispatch.chunks(), " chunks, ",
                                  FixedText(static_cast<double>(result.timing.compute_ns()) / 1e6, 3), " ms\n");
  for (const NamedTensor& named : tensors) {
    absl::StrAppend(&text, named.name, " ", DTypeName(named.tensor.dtype()), " ", ShapeText(named.tensor.shape()));
    const std::int64_t non_finite = CountNonFinite(named.tensor);
    if (non_finite > 0) absl::StrAppend(&text, ", ", non_finite, " not finite");
    if (named.name == "logp") {
      const std::int64_t shown = std::min(kMaxPrintedLineValues, named.tensor.num_elements());
      for (std::int64_t i = 0; i < shown; ++i) {
        absl::StrAppend(&text, i == 0 ? ": " : ", ", DoubleText(named.tensor.At(i)));
      }
      if (shown < named.tensor.num_elements()) text += ", …";
    }
    text += "\n";
  }
  return absl::StrCat(text, "written to ", PrintableText(out), "\n");
}

int Gradient(const Session& session, const GradientFlags& flags) {
  const auto tensors = tensor_file::ReadSafetensors(flags.in);
  if (!tensors.ok()) return Complain(tensors.status(), session.json);
  GradientParams params;
  params.options = flags.options;
  params.want = flags.want;
  if (const auto status = TakeOperands(flags.in, *tensors, &params); !status.ok()) {
    return Complain(status, session.json);
  }
  const auto client = session.Connect();
  if (!client.ok()) return Complain(client.status(), session.json);
  auto result = params.grad_logp.given() ? client->Gradient(params, session.Options())
                                         : client->Forward(params, session.Options());
  if (!result.ok()) return Complain(result.status(), session.json);
  const auto results = TakeResults(&*result);
  auto status = tensor_file::WriteSafetensors(flags.out, results);
  if (status.ok()) {
    status = session.json ? PrintJson(session, ResultJson(flags.out, *result, results))
                          : PrintText(ResultText(flags.out, *result, results));
  }
  return status.ok() ? kDone : Complain(status, session.json);
}

// Calls `set` with the value that `text` names; refuses other text.
template <typename T>
std::function<void(const std::string&)> OneOf(const std::string& flag, std::map<std::string, T> values,
                                              std::function<void(T)> set) {
  return [=](const std::string& text) {
    const auto found = values.find(text);
    if (found == values.end()) {
      const std::string names =
          absl::StrJoin(values, ", ", [](std::string* out, const auto& entry) { out->append(entry.first); });
      RefuseFlag(flag, text, absl::StrCat("one of ", names));
    }
    set(found->second);
  };
}

}  // namespace

void AddGradient(CLI::App* app, Action* action) {
  CLI::App* const command = app->add_subcommand("gradient", "logp and gradients of the tensors in a safetensors file");
  const auto flags = std::make_shared<GradientFlags>();
  const auto chunk_elems = std::make_shared<std::int64_t>(0);
  command->add_option("--in", flags->in, "file with hidden, weight, targets and perhaps bias, grad_logp")->required();
  command->add_option("--out", flags->out, ".safetensors file for logp and the gradients")->required();
  v1::LinearLogpOptions* const options = &flags->options;
  command->add_option_function<std::string>(
      "--variant", [=](const std::string& text) { options->set_variant(text); },
      "implementation; default portable_addmm");
  command->add_option_function<std::string>(
      "--device", [=](const std::string& text) { options->set_device(text); },
      "cpu or cuda:0; default the server's first");
  command
      ->add_option_function<std::string>(
          "--want",
          [=](const std::string& text) {
            const auto add = OneOf<v1::Want>(
                "--want", {{"hidden", v1::WANT_HIDDEN}, {"weight", v1::WANT_WEIGHT}, {"bias", v1::WANT_BIAS}},
                [=](v1::Want want) { flags->want.push_back(want); });
            for (const absl::string_view part : absl::StrSplit(text, ',')) add(std::string(part));
          },
          "gradients, e.g. hidden,weight,bias; default all that apply")
      ->type_name("NAMES");
  command->add_option_function<std::string>(
      "--autocast",
      OneOf<v1::Autocast>(
          "--autocast",
          {{"none", v1::AUTOCAST_NONE}, {"bfloat16", v1::AUTOCAST_BFLOAT16}, {"float16", v1::AUTOCAST_FLOAT16}},
          [=](v1::Autocast value) { options->set_autocast(value); }),
      "none, bfloat16 or float16");
  command->add_option_function<std::string>(
      "--grad_dtype",
      OneOf<v1::GradDtype>("--grad_dtype", {{"input", v1::GRAD_DTYPE_INPUT}, {"float32", v1::GRAD_DTYPE_FLOAT32}},
                           [=](v1::GradDtype value) { options->set_grad_dtype(value); }),
      "input or float32");
  AddInt64(command, "--chunk_elems", chunk_elems.get(), "logits per token chunk; default 2^24", 1);
  command->callback([=] {
    if (absl::EndsWithIgnoreCase(flags->out, ".npy")) {
      RefuseFlag("--out", flags->out,
                 "a .safetensors file, which holds several tensors (keval tensors convert makes .npy)");
    }
    flags->options.set_chunk_elems(*chunk_elems);
    *action = [flags](Session& session) { return Gradient(session, *flags); };
  });
}

}  // namespace keval::cli
