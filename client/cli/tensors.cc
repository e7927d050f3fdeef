// keval tensors put|get|list|stat|touch|delete|convert: tensors that the server keeps, and tensor files.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/field_error.h"
#include "base/number.h"
#include "base/shape.h"
#include "base/text.h"
#include "client/cli/commands.h"
#include "client/cli/exit_code.h"
#include "client/cli/flags.h"
#include "client/cli/proto_json.h"
#include "client/cli/tensor_files.h"
#include "client/cli/usage_error.h"

namespace keval::cli {
namespace {

struct TensorFlags {
  std::vector<std::string> files;
  std::string handle;
  std::string name;
  std::string out;
  std::optional<DType> dtype;
  absl::Duration lease = absl::ZeroDuration();
};

std::string InfoText(const v1::TensorInfo& info) {
  const std::vector<std::int64_t> shape(info.spec().shape().begin(), info.spec().shape().end());
  const absl::Duration left = absl::FromUnixMillis(info.expire_time_unix_ms()) - absl::Now();
  return absl::StrCat(PrintableText(info.handle(), 128), "  ", EnumText(v1::DataType_descriptor(), info.spec().dtype()),
                      "  ", ShapeText(shape), "  ", info.size_bytes(), " bytes, kept for ",
                      FixedText(absl::ToDoubleSeconds(left), 0), " s\n");
}

int Answer(const Session& session, const absl::StatusOr<v1::TensorInfo>& info) {
  if (!info.ok()) return Complain(info.status(), session.json);
  const auto status = session.json ? PrintJson(session, ProtoToJson(*info)) : PrintText(InfoText(*info));
  return status.ok() ? kDone : Complain(status, session.json);
}

int Put(const Session& session, const Client& client, const TensorFlags& flags) {
  const auto tensor = ReadOneTensor(flags.files.front(), flags.name, flags.dtype);
  if (!tensor.ok()) return Complain(tensor.status(), session.json);
  return Answer(session, client.PutTensorIfNew(tensor->tensor.view(), flags.lease, session.Options()));
}

int Get(const Session& session, const Client& client, const TensorFlags& flags) {
  auto tensor = client.GetTensor(flags.handle, session.Options());
  if (!tensor.ok()) return Complain(tensor.status(), session.json);
  std::vector<tensor_file::NamedTensor> tensors;
  tensors.push_back({flags.name.empty() ? "tensor" : flags.name, *std::move(tensor)});
  const auto status = WriteTensors(flags.out, tensors);
  if (!status.ok()) return Complain(status, session.json);
  return Answer(session, client.StatTensor(flags.handle, session.Options()));
}

int List(const Session& session, const Client& client, const TensorFlags&) {
  const auto tensors = client.ListTensors(session.Options());
  if (!tensors.ok()) return Complain(tensors.status(), session.json);
  absl::Status status;
  if (session.json) {
    nlohmann::ordered_json document = {{"tensors", nlohmann::ordered_json::array()}};
    for (const v1::TensorInfo& info : *tensors) document["tensors"].push_back(ProtoToJson(info));
    status = PrintJson(session, document);
  } else {
    std::string text;
    for (const v1::TensorInfo& info : *tensors) text += InfoText(info);
    status = PrintText(text);
  }
  return status.ok() ? kDone : Complain(status, session.json);
}

int Stat(const Session& session, const Client& client, const TensorFlags& flags) {
  return Answer(session, client.StatTensor(flags.handle, session.Options()));
}

int Touch(const Session& session, const Client& client, const TensorFlags& flags) {
  return Answer(session, client.TouchTensor(flags.handle, flags.lease, session.Options()));
}

int Delete(const Session& session, const Client& client, const TensorFlags& flags) {
  const auto status = client.DeleteTensor(flags.handle, session.Options());
  if (!status.ok()) return Complain(status, session.json);
  const auto printed =
      session.json ? PrintJson(session, {{"handle", flags.handle}, {"deleted", true}}) : PrintText("deleted\n");
  return printed.ok() ? kDone : Complain(printed, session.json);
}

int Convert(const Session& session, const TensorFlags& flags) {
  const auto tensors = ReadTensors(flags.files, flags.name, flags.dtype);
  if (!tensors.ok()) return Complain(tensors.status(), session.json);
  auto status = WriteTensors(flags.out, *tensors);
  if (status.ok() && session.json) {
    nlohmann::ordered_json document = {{"out", PrintableText(flags.out)},
                                       {"tensors", nlohmann::ordered_json::object()}};
    for (const auto& named : *tensors) {
      document["tensors"][named.name] = {{"dtype", std::string(DTypeName(named.tensor.dtype()))},
                                         {"shape", named.tensor.shape()}};
    }
    status = PrintJson(session, document);
  }
  return status.ok() ? kDone : Complain(status, session.json);
}

using Remote = int (*)(const Session&, const Client&, const TensorFlags&);

CLI::App* AddRemote(CLI::App* tensors, const std::string& name, const std::string& help,
                    const std::shared_ptr<TensorFlags>& flags, Action* action, Remote remote) {
  CLI::App* const command = tensors->add_subcommand(name, help);
  command->callback([=] {
    *action = [=](Session& session) {
      const auto client = session.Connect();
      return client.ok() ? remote(session, *client, *flags) : Complain(client.status(), session.json);
    };
  });
  return command;
}

void AddDType(CLI::App* command, const std::shared_ptr<TensorFlags>& flags) {
  command
      ->add_option_function<std::string>(
          "--dtype",
          [=](const std::string& text) {
            flags->dtype = ParseDType(text);
            if (!flags->dtype) {
              RefuseFlag("--dtype", text, "float32, float64, bfloat16, float16, int32 or int64");
            }
          },
          "element type of .npy files: needed for bfloat16, which numpy saves as <V2; float32 is rounded to bfloat16")
      ->type_name("DTYPE");
}

}  // namespace

void AddTensors(CLI::App* app, Action* action) {
  CLI::App* const tensors = app->add_subcommand("tensors", "tensors that the server keeps, and tensor files");
  tensors->require_subcommand(1)->fallthrough();
  const auto flags = std::make_shared<TensorFlags>();

  CLI::App* const put =
      AddRemote(tensors, "put", "store a tensor, sending it only where the server lacks its bytes; prints its handle",
                flags, action, &Put);
  put->add_option("FILE", flags->files, ".safetensors or .npy")->required()->expected(1);
  put->add_option("--name", flags->name, "which tensor, where the file has several");
  AddSeconds(put, "--lease_seconds", &flags->lease, "how long the server keeps it; default the server's");
  AddDType(put, flags);

  CLI::App* const get = AddRemote(tensors, "get", "write a stored tensor to a file", flags, action, &Get);
  get->add_option("HANDLE", flags->handle, "tensors/ID")->required();
  get->add_option("--out", flags->out, ".safetensors or .npy")->required();
  get->add_option("--name", flags->name, "its name in a .safetensors file; default tensor");

  AddRemote(tensors, "list", "show your stored tensors", flags, action, &List);
  AddRemote(tensors, "stat", "show a stored tensor", flags, action, &Stat)
      ->add_option("HANDLE", flags->handle, "tensors/ID")
      ->required();
  CLI::App* const touch = AddRemote(tensors, "touch", "extend a stored tensor's lease", flags, action, &Touch);
  touch->add_option("HANDLE", flags->handle, "tensors/ID")->required();
  AddSeconds(touch, "--lease_seconds", &flags->lease, "from now; default the server's");
  AddRemote(tensors, "delete", "delete a stored tensor", flags, action, &Delete)
      ->add_option("HANDLE", flags->handle, "tensors/ID")
      ->required();

  CLI::App* const convert = tensors->add_subcommand("convert", "between .npy and .safetensors, offline");
  convert->add_option("FILES", flags->files, "FILE or NAME=FILE ...; a .npy is named after its file")->required();
  convert->add_option("--out", flags->out, ".safetensors or .npy; else the last of FILES");
  convert->add_option("--name", flags->name, "which tensor, where a .safetensors file has several");
  AddDType(convert, flags);
  convert->callback([=] {
    if (flags->out.empty()) {
      if (flags->files.size() < 2) {
        RefuseFlag("FILES", "one file", "a file to read and one to write, or have --out beside it");
      }
      flags->out = flags->files.back();
      flags->files.pop_back();
    }
    *action = [flags](Session& session) { return Convert(session, *flags); };
  });
  for (CLI::App* const command : tensors->get_subcommands({})) command->fallthrough();
}

}  // namespace keval::cli
