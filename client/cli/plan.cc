// keval plan: chunking and the static traffic model of the gradient table, without a server.
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/exit_code.h"
#include "client/cli/flags.h"
#include "core/linear_logp/chunk_plan.h"

namespace keval::cli {
namespace {

struct PlanFlags {
  std::int64_t num_tokens = 0;
  std::int64_t hidden_size = 0;
  std::int64_t vocab_size = 0;
  std::int64_t chunk_elems = linear_logp::kDefaultChunkElems;
};

int Plan(const Session& session, const PlanFlags& flags) {
  const auto plan =
      linear_logp::MakeChunkPlan(flags.num_tokens, flags.hidden_size, flags.vocab_size, flags.chunk_elems);
  if (!plan.ok()) return Complain(plan.status(), session.json);
  absl::Status status;
  if (session.json) {
    status = PrintJson(session, {{"chunk_tokens", plan->chunk_tokens},
                                 {"chunks", plan->chunks},
                                 {"base_bytes", plan->base_bytes},
                                 {"candidate_bytes", plan->candidate_bytes},
                                 {"saving_bytes", plan->saving_bytes},
                                 {"add_ops_saved", plan->add_ops_saved}});
  } else {
    status = PrintText(absl::StrCat(plan->chunks, " chunks of ", plan->chunk_tokens, " tokens\n",
                                    "logical bytes of the gradient table (a model, not a measurement):\n  base      ",
                                    plan->base_bytes, "\n  candidate ", plan->candidate_bytes, "\n  saving    ",
                                    plan->saving_bytes, "\n", plan->add_ops_saved, " add operations saved\n"));
  }
  return status.ok() ? kDone : Complain(status, session.json);
}

}  // namespace

void AddPlan(CLI::App* app, Action* action) {
  CLI::App* const command = app->add_subcommand("plan", "chunking and the static traffic model, offline");
  const auto flags = std::make_shared<PlanFlags>();
  // Any whole number: the model itself refuses what can't be, naming the field.
  const std::int64_t least = std::numeric_limits<std::int64_t>::min();
  AddInt64(command, "--num_tokens", &flags->num_tokens, "N", least)->required();
  AddInt64(command, "--hidden_size", &flags->hidden_size, "D", least)->required();
  AddInt64(command, "--vocab_size", &flags->vocab_size, "V", least)->required();
  AddInt64(command, "--chunk_elems", &flags->chunk_elems, "logits per token chunk; default 2^24", least);
  command->callback([=] { *action = [flags](Session& session) { return Plan(session, *flags); }; });
}

}  // namespace keval::cli
