// P1 to P8: what makes an arm one of the two production paths. Most of it is read off the operators that ran.
#include <ATen/ops/add.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/softmax.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/contract/agreement.h"
#include "core/contract/evidence.h"
#include "core/linear_logp/chunk_plan.h"

namespace keval::contract {
namespace {

using linear_logp::Autocast;
using linear_logp::ProductionPath;

using Shape = std::vector<std::int64_t>;

constexpr char kClaimsNoPath[] = "binds the production paths only, and this variant claims to be neither";
constexpr char kNotTheProductionPair[] =
    "compares portable_addmm as candidate with portable_matmul_add as base, and this isn't that pair";

const Outcome& OutcomeOf(const Sample& sample, const Arm& arm) {
  return sample.outcomes[static_cast<std::size_t>(arm.index())];
}

Shape TableShape(const Case& c) { return {c.Words(), c.Width()}; }

linear_logp::ChunkPlan PlanOf(const Case& c) {
  return linear_logp::MakeChunkPlan(c.Tokens(), c.Width(), c.Words(), c.options.chunk_elems)
      .value_or(linear_logp::ChunkPlan{});
}

// Calls `judge` for each sample that the arm ran; skips the arm that claims no production path.
template <typename Judge>
void ForEachSample(const Evidence& evidence, const Arm& arm, Tally* tally, const Judge& judge) {
  if (!arm.ClaimsAnyPath()) return tally->Note(kClaimsNoPath);
  for (const Sample& sample : evidence.samples) {
    const Outcome& outcome = OutcomeOf(sample, arm);
    if (Usable(sample.test_case, outcome, tally)) judge(sample, outcome);
  }
}

// Rows of each matrix product that makes logits, [rows, V], in order.
Shape LogitsRows(const Case& c, const OpList& ops) {
  Shape rows;
  for (const TracedOp& op : ops) {
    if (!op.IsGemm() || op.outputs.empty()) continue;
    const Shape& shape = op.outputs.front().shape;
    if (shape.size() == 2 && shape[1] == c.Words() && shape[0] != c.Width()) rows.push_back(shape[0]);
  }
  return rows;
}

// Places in which two lists differ.
template <typename T>
std::int64_t CountDifferentPlaces(const std::vector<T>& a, const std::vector<T>& b) {
  const std::size_t both = std::min(a.size(), b.size());
  std::int64_t same = 0;
  for (std::size_t i = 0; i < both; ++i) same += a[i] == b[i] ? 1 : 0;
  return static_cast<std::int64_t>(std::max(a.size(), b.size())) - same;
}

void CheckP1(const Evidence& evidence, const Arm& arm, Tally* tally) {
  ForEachSample(evidence, arm, tally, [&](const Sample& sample, const Outcome& outcome) {
    const Case& c = sample.test_case;
    const linear_logp::ChunkPlan plan = PlanOf(c);
    for (const linear_logp::Dispatch* dispatch : {&outcome.forward_dispatch, &outcome.backward_dispatch}) {
      tally->Expect(c.Label(), dispatch->chunks == plan.chunks && dispatch->chunk_tokens == plan.chunk_tokens,
                    absl::StrCat("says ", dispatch->chunks, " chunks of ", dispatch->chunk_tokens, " tokens, not ",
                                 plan.chunks, " of ", plan.chunk_tokens));
    }
    if (c.Words() <= 1) return;  // A product with one column may be run as anything.
    Shape expected;
    for (std::int64_t begin = 0; begin < c.Tokens(); begin += plan.chunk_tokens) {
      expected.push_back(std::min(plan.chunk_tokens, c.Tokens() - begin));
    }
    for (const OpList* ops : {&outcome.forward_ops, &outcome.backward_ops}) {
      const Shape rows = LogitsRows(c, *ops);
      tally->Count(c.Label(), CountDifferentPlaces(rows, expected),
                   absl::StrCat("ran chunks of [", absl::StrJoin(rows, ", "), "] tokens, not [",
                                absl::StrJoin(expected, ", "), "]"));
    }
  });
}

void CheckP2(const Evidence& evidence, const Arm& arm, Tally* tally) {
  ForEachSample(evidence, arm, tally, [&](const Sample& sample, const Outcome& outcome) {
    const Case& c = sample.test_case;
    if (c.options.autocast != Autocast::kNone) return;
    const at::ScalarType wanted = c.problem.dtype == DType::kFloat64 ? at::kDouble : at::kFloat;
    for (const OpList* ops : {&outcome.forward_ops, &outcome.backward_ops}) {
      for (const TracedOp& op : *ops) {
        if (!op.IsGemm()) continue;
        const auto wrong = std::count_if(op.inputs.begin(), op.inputs.end(),
                                         [&](const TracedTensor& input) { return input.dtype != wanted; });
        tally->Count(c.Label(), wrong, absl::StrCat(op.name, " has an operand that isn't ", c10::toString(wanted)));
      }
    }
  });
}

// With hidden the identity, each element of grad_weight is one element of dz, and each logit one sum of two numbers:
// dz's very bits can be computed beside the variant's.
void CheckP3(const Evidence& evidence, const Arm& arm, Tally* tally) {
  if (!arm.ClaimsAnyPath()) return tally->Note(kClaimsNoPath);
  for (const std::int64_t chunk_tokens : {5, 16}) {
    Case c = evidence.maker.Plain(DType::kFloat32, {.num_tokens = 16, .hidden_size = 16, .chunk_tokens = chunk_tokens},
                                  absl::StrCat("identity_hidden_chunks_of_", chunk_tokens));
    c.inputs.hidden = at::eye(16, c.inputs.hidden.options());
    const Outcome outcome = arm.Run(c);
    if (!Usable(c, outcome, tally)) continue;
    const at::Tensor logits = at::add(c.inputs.weight.t().contiguous(), c.inputs.bias);
    const at::Tensor dz = at::softmax(logits, 1).neg_();
    const at::Tensor column = c.inputs.targets.unsqueeze(1);
    dz.scatter_(1, column, at::add(dz.gather(1, column), 1));
    dz.mul_(c.inputs.grad_logp.unsqueeze(1));
    const at::Tensor right = dz.t().contiguous().to(at::kCPU);
    const Agreement agreement = CompareC1(right, outcome.gradients.grad_weight);
    tally->Expect(c.Label(), agreement.ok, agreement.why);
    tally->Measure(c.Label(), static_cast<double>(agreement.max_ulp), 0, "ULP of float32 between dz and the formula's");
  }
}

void CheckP4(const Evidence& evidence, const Arm& arm, Tally* tally) {
  ForEachSample(evidence, arm, tally, [&](const Sample& sample, const Outcome& outcome) {
    const Case& c = sample.test_case;
    if (c.name != "zero_upstream" && c.name != "no_tokens") return;
    const at::Tensor& gradient = outcome.gradients.grad_weight;
    if (!gradient.defined()) return tally->Fail(c.Label(), "grad_weight is missing");
    tally->Count(c.Label(), gradient.signbit().sum().item<std::int64_t>(),
                 "grad_weight has a -0 that a zeroed table can't have");
  });
}

struct TableOps {
  std::int64_t matmul = 0;
  std::int64_t add = 0;
  std::int64_t addmm = 0;
};

TableOps CountTableOps(const Case& c, const OpList& ops) {
  const Shape table = TableShape(c);
  return {CountOps(ops, "aten::mm", table), CountOps(ops, "aten::add_", table), CountOps(ops, "aten::addmm_", table)};
}

void ExpectTableOps(const Case& c, const OpList& ops, bool in_place, Tally* tally) {
  const std::int64_t chunks = PlanOf(c).chunks;
  const TableOps counts = CountTableOps(c, ops);
  const TableOps right = in_place ? TableOps{0, 0, chunks} : TableOps{chunks, chunks, 0};
  const std::int64_t different =
      std::abs(counts.matmul - right.matmul) + std::abs(counts.add - right.add) + std::abs(counts.addmm - right.addmm);
  tally->Count(c.Label(), different,
               absl::StrCat("the table saw mm ", counts.matmul, ", add_ ", counts.add, ", addmm_ ", counts.addmm,
                            "; not ", right.matmul, ", ", right.add, ", ", right.addmm));
}

void CheckP5(const Evidence& evidence, const Arm& arm, Tally* tally) {
  if (!arm.Claims(ProductionPath::kMatmulAdd)) return tally->Note("this variant doesn't claim to be the base path");
  ForEachSample(evidence, arm, tally, [&](const Sample& sample, const Outcome& outcome) {
    ExpectTableOps(sample.test_case, outcome.backward_ops, false, tally);
  });
}

// Names of the operators that don't work on the table.
std::vector<std::string> OtherOps(const Case& c, const OpList& ops) {
  std::vector<std::string> names;
  for (const TracedOp& op : ops) {
    // matmul, its casts and views, and the addition: one operator in the other path.
    if (!op.Makes(TableShape(c))) names.push_back(op.name);
  }
  return names;
}

void CheckP6(const Evidence& evidence, const Arm& arm, Tally* tally) {
  if (!arm.Claims(ProductionPath::kAddmm)) return tally->Note("this variant doesn't claim to be the addmm_ path");
  ForEachSample(evidence, arm, tally, [&](const Sample& sample, const Outcome& outcome) {
    const Case& c = sample.test_case;
    const bool in_place = c.problem.dtype != DType::kFloat64 && c.options.autocast == Autocast::kNone;
    ExpectTableOps(c, outcome.backward_ops, in_place, tally);
    const Outcome& base = sample.outcomes[0];
    if (!evidence.IsProductionPair() || !base.Ran()) return;
    // On CUDA the two products prepare operands of one row differently (a copy in one of them): the library's affair.
    if (c.Words() > 1) {
      tally->Count(c.Label(), CountDifferentPlaces(OtherOps(c, outcome.backward_ops), OtherOps(c, base.backward_ops)),
                   "operators other than the table's differ from base's");
    }
    tally->Count(c.Label(),
                 CountDifferent(outcome.gradients.grad_hidden, base.gradients.grad_hidden) +
                     CountDifferent(outcome.gradients.grad_bias, base.gradients.grad_bias) +
                     CountDifferent(outcome.logp, base.logp),
                 "logp, grad_hidden or grad_bias differs from base's in a bit");
  });
}

std::vector<std::string> Names(const OpList& ops) {
  std::vector<std::string> names;
  for (const TracedOp& op : ops) names.push_back(op.name);
  return names;
}

void CheckP7(const Evidence& evidence, const Arm& arm, Tally* tally) {
  if (!evidence.IsProductionPair()) return tally->Note(kNotTheProductionPair);
  for (const Sample& sample : evidence.samples) {
    const Case& c = sample.test_case;
    if (c.options.autocast == Autocast::kNone) continue;
    const Outcome& base = sample.outcomes[0];
    const Outcome& candidate = OutcomeOf(sample, arm);
    if (!Usable(c, base, tally) || !Usable(c, candidate, tally)) continue;
    tally->Count(c.Label(), CountDifferentResults(base, candidate), "differs from base in a bit");
    tally->Count(c.Label(),
                 CountDifferentPlaces(Names(base.forward_ops), Names(candidate.forward_ops)) +
                     CountDifferentPlaces(Names(base.backward_ops), Names(candidate.backward_ops)),
                 "runs other operators than base");
  }
}

std::int64_t CountFresh(const OpList& ops, const Shape& shape) {
  return std::count_if(ops.begin(), ops.end(), [&](const TracedOp& op) { return op.Makes(shape) && op.Allocates(); });
}

std::int64_t CountCasts(const OpList& ops, const at::Tensor& of) {
  const void* storage = of.storage().unsafeGetStorageImpl();
  return std::count_if(ops.begin(), ops.end(), [&](const TracedOp& op) {
    return op.name == "aten::_to_copy" && !op.inputs.empty() && op.inputs.front().storage == storage;
  });
}

std::int64_t CountHiddenProducts(const Case& c, const OpList& ops) {
  return std::count_if(ops.begin(), ops.end(), [&](const TracedOp& op) {
    return op.IsGemm() && !op.outputs.empty() && op.outputs.front().shape.size() == 2 &&
           op.outputs.front().shape[1] == c.Width() && op.outputs.front().shape[0] != c.Words();
  });
}

void CheckP8(const Evidence& evidence, const Arm& arm, Tally* tally) {
  if (!arm.ClaimsAnyPath()) return tally->Note(kClaimsNoPath);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const Case c = evidence.maker.Plain(dtype);
    const Outcome no_weight = arm.Run(c, {.hidden = true, .weight = false, .bias = true});
    const Outcome no_hidden = arm.Run(c, {.hidden = false, .weight = true, .bias = true});
    const Outcome no_bias = arm.Run(c, {.hidden = true, .weight = true, .bias = false});
    for (const Outcome* outcome : {&no_weight, &no_hidden, &no_bias}) {
      if (!Usable(c, *outcome, tally)) return;
    }
    // The logits need float32 copies of weight and of each chunk of hidden (P2), as the forward's do; no more.
    const Shape table = TableShape(c);
    tally->Measure(absl::StrCat(c.Label(), "/weight_unwanted"),
                   static_cast<double>(CountFresh(no_weight.backward_ops, table)),
                   static_cast<double>(CountFresh(no_weight.forward_ops, table)), "fresh [V, D] tensors");
    tally->Measure(absl::StrCat(c.Label(), "/weight_unwanted"),
                   static_cast<double>(CountCasts(no_weight.backward_ops, c.inputs.hidden)),
                   static_cast<double>(CountCasts(no_weight.forward_ops, c.inputs.hidden)), "casts of hidden");
    tally->Expect(absl::StrCat(c.Label(), "/hidden_unwanted"),
                  CountHiddenProducts(c, no_hidden.backward_ops) == 0 &&
                      CountFresh(no_hidden.backward_ops, {c.Tokens(), c.Width()}) == 0,
                  "makes grad_hidden though it isn't wanted");
    tally->Expect(absl::StrCat(c.Label(), "/bias_unwanted"),
                  CountOps(no_bias.backward_ops, "aten::sum", {c.Words()}) == 0 &&
                      CountOps(no_bias.backward_ops, "aten::zeros", {c.Words()}) == 0,
                  "makes grad_bias though it isn't wanted");
  }
}

constexpr Line kLines[] = {{"P1", CheckP1}, {"P2", CheckP2}, {"P3", CheckP3},       {"P4", CheckP4},
                           {"P5", CheckP5}, {"P6", CheckP6}, {"P7", CheckP7, true}, {"P8", CheckP8}};

}  // namespace

absl::Span<const Line> ProductionPathLines() { return kLines; }

}  // namespace keval::contract
