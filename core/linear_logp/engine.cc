#include "core/linear_logp/engine.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <new>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/field_error.h"
#include "base/text.h"
#include "core/linear_logp/autocast.h"
#include "core/linear_logp/byte_count.h"
#include "core/linear_logp/chunk_plan.h"
#include "core/linear_logp/cuda_device.h"
#include "core/linear_logp/host_memory.h"
#include "core/linear_logp/host_tensor.h"
#include "core/linear_logp/numerics.h"
#include "core/linear_logp/portable.h"
#include "core/linear_logp/variant.h"

namespace keval::linear_logp {
namespace {

constexpr char kFallbackVariant[] = "portable_addmm";
// cuBLAS's workspace (:4096:8 is 32 MiB) and the allocators' rounding.
constexpr std::int64_t kWorkspaceBytes = std::int64_t{64} << 20;

c10::Device TorchDevice(const Device& device) {
  return device.cuda ? c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device.index)) : c10::Device(c10::kCPU);
}

// A library's message for a caller: its first line, without words that look like file paths.
std::string WithoutPaths(absl::string_view message) {
  const absl::string_view line = *absl::StrSplit(message, '\n').begin();
  std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
  for (absl::string_view& word : words) {
    if (absl::StrContains(word, '/')) word = "…";
  }
  return PrintableText(absl::StrJoin(words, " "), 256);
}

std::int64_t Bytes(std::initializer_list<std::int64_t> dimensions, DType dtype) {
  return SaturatingProduct({SaturatingProduct(dimensions), DTypeSize(dtype)});
}

// Weight and bias.
VariantInputs HeadOnDevice(const Problem& problem, const Inputs& inputs, c10::Device device) {
  VariantInputs result;
  result.weight = ToDevice(inputs.weight, {problem.vocab_size, problem.hidden_size}, device);
  if (problem.has_bias) result.bias = ToDevice(*inputs.bias, {problem.vocab_size}, device);
  return result;
}

// All but hidden. `head`: weight and bias, where they are on the device already; else null.
VariantInputs InputsOnDevice(const Problem& problem, const Inputs& inputs, c10::Device device,
                             const VariantInputs* head) {
  VariantInputs result = head != nullptr ? *head : HeadOnDevice(problem, inputs, device);
  result.targets = ToDevice(inputs.targets, {problem.num_tokens}, device).to(at::kLong);
  if (!problem.has_grad_logp) return result;
  if (inputs.grad_logp_is_scalar && problem.num_tokens > 0) {
    result.grad_logp = ToDevice(*inputs.grad_logp, {1}, device).expand({problem.num_tokens});
  } else {
    result.grad_logp = ToDevice(*inputs.grad_logp, {problem.num_tokens}, device);
  }
  return result;
}

}  // namespace

struct Engine::State {
  Device device;
  std::atomic<bool> healthy = true;
  absl::Status lost;  // Why healthy is false; written before it.

  absl::Status Lose(absl::Status status) {
    lost = std::move(status);
    healthy = false;
    return lost;
  }

  // What a variant of that name makes of the problem, and who runs it instead where it declines.
  struct Choice {
    const Variant* variant = nullptr;
    std::string declined;  // Why the variant asked for doesn't run; empty where it does.
  };

  absl::StatusOr<Choice> Choose(const Problem& problem, const Options& options) const {
    const absl::StatusOr<const Variant*> asked = FindVariant(options.variant);
    if (!asked.ok()) return asked.status();
    const Support support = (*asked)->Supports(problem, options, device);
    if (support.supported && !(support.fallback && options.force_variant)) return Choice{*asked, ""};
    const std::string why = absl::StrCat(options.variant, " on ", device.Name(), ": ", support.reason);
    const auto decline = [&](absl::string_view field, absl::string_view value) {
      return WithField(absl::FailedPreconditionError(absl::StrCat(field, ": ", why)),
                       {std::string(field), std::string(value), support.reason});
    };
    if (options.force_variant) return decline("force_variant", "true");
    const absl::StatusOr<const Variant*> instead = FindVariant(kFallbackVariant);
    if (!instead.ok()) return instead.status();
    if (!(*instead)->Supports(problem, options, device).supported) return decline("variant", options.variant);
    return Choice{*instead, absl::StrCat("fallback to ", kFallbackVariant, ": ", why)};
  }

  // A device that can't be asked may be lost, which may show here first: between two calls.
  absl::StatusOr<std::int64_t> FreeBytes() {
    if (!healthy) return lost;
    if (!device.cuda) return ReadHostMemory().free_bytes;
    absl::StatusOr<std::int64_t> bytes = CudaFreeBytes(device.index);
    if (bytes.ok()) return bytes;
    absl::Status sticky = CudaStickyError(device.index);
    return sticky.ok() ? bytes.status() : Lose(std::move(sticky));
  }

  static std::int64_t Estimate(const Variant& variant, const Problem& problem, const Options& options, Want want) {
    const std::int64_t tokens = problem.num_tokens;
    const std::int64_t width = problem.hidden_size;
    const std::int64_t words = problem.vocab_size;
    const DType logp = problem.LogpDtype();
    const DType gradient = options.grad_dtype == GradDtype::kFloat32 ? logp : problem.dtype;
    // Inputs; targets as they come and as int64.
    std::int64_t bytes =
        SaturatingSum({Bytes({tokens, width}, problem.dtype), Bytes({words, width}, problem.dtype),
                       Bytes({words}, problem.dtype), Bytes({tokens, 2}, DType::kInt64), Bytes({tokens, 2}, logp)});
    if (problem.has_grad_logp) {
      const std::int64_t gradients =
          SaturatingSum({want.hidden ? Bytes({tokens, width}, gradient) : 0,
                         want.weight ? Bytes({words, width}, gradient) : 0, Bytes({words}, gradient)});
      bytes = SaturatingSum({bytes, gradients});
    }
    return SaturatingSum({bytes, variant.ScratchBytes(problem, options, want), kWorkspaceBytes});
  }

  // RESOURCE_EXHAUSTED where the call wouldn't fit into what is free now. ABORTED as FreeBytes.
  absl::Status CheckMemory(std::int64_t needed) {
    const absl::StatusOr<std::int64_t> free_bytes = FreeBytes();
    if (!free_bytes.ok()) return free_bytes.status();
    if (needed <= *free_bytes) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        absl::StrCat(device.Name(), ": ", needed, " bytes needed, ", *free_bytes, " bytes free"));
  }

  // After the allocator itself said no, and everything of the call was freed again.
  absl::Status OutOfMemory(std::int64_t needed) {
    if (device.cuda) ReleaseCudaCache();
    const absl::StatusOr<std::int64_t> free_bytes = FreeBytes();
    return absl::ResourceExhaustedError(absl::StrCat(device.Name(), ": an allocation failed; ", needed,
                                                     " bytes needed, ", free_bytes.ok() ? *free_bytes : 0,
                                                     " bytes free"));
  }

  // Runs `work`, which may throw whatever torch code and variants throw; its tensors are gone once it returned.
  template <typename Work>
  absl::StatusOr<Outputs> Guarded(std::int64_t needed, const Work& work) {
    absl::Status failure;
    try {
      return work();
    } catch (const Stopped& stopped) {
      failure = stopped.status;
    } catch (const c10::OutOfMemoryError&) {
      failure = OutOfMemory(needed);
    } catch (const std::bad_alloc&) {
      failure = OutOfMemory(needed);
    } catch (const c10::Error& error) {
      const absl::string_view what = error.what_without_backtrace();
      // The CPU allocator throws no type of its own.
      failure = absl::StrContains(what, "DefaultCPUAllocator") ? OutOfMemory(needed)
                                                               : absl::InternalError(WithoutPaths(what));
    } catch (const std::exception& error) {
      failure = absl::InternalError(WithoutPaths(error.what()));
    }
    if (!device.cuda) return failure;
    // Kernels of the call may still run (it may have been stopped), and one of them may have been the cause.
    absl::Status sticky = CudaStickyError(device.index);
    return sticky.ok() ? failure : Lose(std::move(sticky));
  }

  struct Session final : SessionTensors {
    // The last step of a micro-batch. In place and of one dtype, so it allocates nothing and can't fail halfway.
    // Not const: what these handles hold changes. NOLINTNEXTLINE(readability-make-member-function-const)
    void Add(const at::Tensor& weight, const at::Tensor& bias) {
      if (weight.defined()) sums.weight.add_(weight);
      if (bias.defined()) sums.bias.add_(bias);
    }

    Inputs held;         // On a CPU the owners of what `head` looks at.
    VariantInputs head;  // Weight and bias alone.
    GradientTables sums;
  };

  static Options Computed(Options options, const Session* session) {
    if (session != nullptr) options.grad_dtype = GradDtype::kFloat32;  // What is added isn't rounded before.
    return options;
  }

  absl::StatusOr<Outputs> Run(const Problem& problem, const Options& options, Want want, const Inputs& inputs,
                              const ContinueCheck& check, Session* session = nullptr) {
    if (!healthy) return lost;
    const auto plan = MakeChunkPlan(problem.num_tokens, problem.hidden_size, problem.vocab_size, options.chunk_elems);
    if (!plan.ok()) return plan.status();
    const absl::StatusOr<Choice> choice = Choose(problem, options);
    if (!choice.ok()) return choice.status();
    if (absl::Status status = ValidateTargets(problem, inputs.targets.data); !status.ok()) return status;
    const std::int64_t needed = Estimate(*choice->variant, problem, Computed(options, session), want);
    if (absl::Status status = CheckMemory(needed); !status.ok()) return status;
    return Guarded(needed, [&] { return Compute(*choice, problem, options, want, inputs, check, session); });
  }

  Outputs Compute(const Choice& choice, const Problem& problem, const Options& options, Want want, const Inputs& inputs,
                  const ContinueCheck& check, Session* session) const {
    const c10::Device torch_device = TorchDevice(device);
    const c10::OptionalDeviceGuard device_guard(torch_device);
    const AutocastScope autocast(torch_device.type(), options.autocast);
    VariantInputs on_device =
        InputsOnDevice(problem, inputs, torch_device, session != nullptr ? &session->head : nullptr);
    on_device.hidden = ToDevice(inputs.hidden, {problem.num_tokens, problem.hidden_size}, torch_device);
    Outputs outputs;
    outputs.logp = ToHost(choice.variant->Forward(on_device, options, check, &outputs.dispatch), problem.leading_shape);
    Gradients gradients;
    if (problem.has_grad_logp) {
      gradients = choice.variant->Backward(on_device, Computed(options, session), want, check, &outputs.dispatch);
    }
    NameRequested(choice, options, &outputs.dispatch);
    if (gradients.grad_hidden.defined()) {
      std::vector<std::int64_t> shape = problem.leading_shape;
      shape.push_back(problem.hidden_size);
      outputs.grad_hidden = ToHost(gradients.grad_hidden.to(GradientType(on_device.hidden, options)), std::move(shape));
    }
    if (session != nullptr) {
      ThrowIfStopped(check);
      session->Add(gradients.grad_weight, gradients.grad_bias);
      return outputs;
    }
    if (gradients.grad_weight.defined()) {
      outputs.grad_weight = ToHost(gradients.grad_weight, {problem.vocab_size, problem.hidden_size});
    }
    if (gradients.grad_bias.defined()) outputs.grad_bias = ToHost(gradients.grad_bias, {problem.vocab_size});
    return outputs;
  }

  static void NameRequested(const Choice& choice, const Options& options, Dispatch* dispatch) {
    dispatch->requested_variant = options.variant;
    if (choice.declined.empty()) return;
    dispatch->reason = choice.declined;
    dispatch->fallback = true;
  }

  // Begin's, AddChunk's and Finish's common frame.
  struct Chunked final : ChunkedGradient {
    Choice choice;
    Problem problem;
    Options options;
    Want want;
    ChunkPlan plan;
    std::int64_t needed = 0;
    std::int64_t next = 0;  // The first token of the next chunk.
    VariantInputs inputs;   // Of all tokens; no hidden; weight and bias as GEMM operands.
    GradientTables tables;
    Dispatch dispatch;
  };

  template <typename Work>
  absl::StatusOr<Outputs> OnDevice(std::int64_t needed, Autocast autocast, const Work& work) {
    if (!healthy) return lost;
    return Guarded(needed, [&] {
      const c10::Device torch_device = TorchDevice(device);
      const c10::OptionalDeviceGuard device_guard(torch_device);
      const AutocastScope scope(torch_device.type(), autocast);
      const at::NoGradGuard no_grad;
      return work(torch_device);
    });
  }
  template <typename Work>
  absl::StatusOr<Outputs> OnDevice(const Chunked& gradient, const Work& work) {
    return OnDevice(gradient.needed, gradient.options.autocast, work);
  }

  absl::StatusOr<std::unique_ptr<ChunkedGradient>> Begin(const Problem& problem, const Options& options, Want want,
                                                         const Inputs& inputs, const Session* session) {
    if (!healthy) return lost;
    const auto plan = MakeChunkPlan(problem.num_tokens, problem.hidden_size, problem.vocab_size, options.chunk_elems);
    if (!plan.ok()) return plan.status();
    const absl::StatusOr<Choice> choice = Choose(problem, options);
    if (!choice.ok()) return choice.status();
    if (!choice->variant->Describe().takes_chunks || problem.num_tokens == 0) return nullptr;
    absl::Status status = ValidateTargets(problem, inputs.targets.data);
    if (!status.ok()) return status;
    auto gradient = std::make_unique<Chunked>();
    gradient->choice = *choice;
    gradient->problem = problem;
    gradient->options = options;
    gradient->want = want;
    gradient->plan = *plan;
    // Three chunks' worth of hidden and its gradient, and what all tokens have: targets, grad_logp.
    Problem chunk = problem;
    chunk.num_tokens = plan->chunk_tokens;
    gradient->needed =
        SaturatingSum({Estimate(*choice->variant, chunk, options, want), Bytes({problem.num_tokens, 2}, DType::kInt64),
                       Bytes({problem.num_tokens}, problem.LogpDtype())});
    status = CheckMemory(gradient->needed);
    if (!status.ok()) return status;
    const absl::StatusOr<Outputs> done = OnDevice(*gradient, [&](c10::Device torch_device) {
      gradient->inputs = InputsOnDevice(problem, inputs, torch_device, session != nullptr ? &session->head : nullptr);
      if (problem.has_grad_logp) gradient->tables = ZeroTables(gradient->inputs, want);
      gradient->inputs.weight = GemmOperand(gradient->inputs.weight);
      if (problem.has_bias) gradient->inputs.bias = GemmOperand(gradient->inputs.bias);
      return Outputs();
    });
    if (!done.ok()) return done.status();
    return gradient;
  }

  absl::StatusOr<Outputs> AddChunk(Chunked* gradient, const std::byte* hidden) {
    const Problem& problem = gradient->problem;
    const std::int64_t begin = gradient->next;
    const std::int64_t tokens = std::min(gradient->plan.chunk_tokens, problem.num_tokens - begin);
    gradient->next += tokens;
    return OnDevice(*gradient, [&](c10::Device torch_device) {
      VariantInputs chunk = gradient->inputs;
      const std::vector<std::int64_t> shape = {tokens, problem.hidden_size};
      chunk.hidden = ToDevice({{problem.dtype, shape}, hidden, nullptr}, shape, torch_device);
      chunk.targets = chunk.targets.narrow(0, begin, tokens);
      if (chunk.grad_logp.defined()) chunk.grad_logp = chunk.grad_logp.narrow(0, begin, tokens);
      const ChunkResult result = gradient->choice.variant->Chunk(chunk, gradient->options, gradient->want,
                                                                 &gradient->tables, &gradient->dispatch);
      Outputs outputs;
      outputs.logp = ToHost(result.logp, {tokens});
      if (result.grad_hidden.defined()) outputs.grad_hidden = ToHost(result.grad_hidden, shape);
      return outputs;
    });
  }

  absl::StatusOr<Outputs> Finish(Chunked* gradient, Session* session) {
    const Problem& problem = gradient->problem;
    return OnDevice(*gradient, [&](c10::Device /*torch_device*/) {
      const at::ScalarType type = gradient->options.grad_dtype == GradDtype::kFloat32 ? TorchType(problem.LogpDtype())
                                                                                      : TorchType(problem.dtype);
      const GradientTables tables = std::move(gradient->tables);
      Outputs outputs;
      outputs.dispatch = gradient->dispatch;
      outputs.dispatch.chunk_tokens = gradient->plan.chunk_tokens;
      outputs.dispatch.chunks = gradient->plan.chunks;
      NameRequested(gradient->choice, gradient->options, &outputs.dispatch);
      if (session != nullptr) {
        session->Add(tables.weight, tables.bias);
        return outputs;
      }
      if (tables.weight.defined()) {
        outputs.grad_weight = ToHost(tables.weight.to(type), {problem.vocab_size, problem.hidden_size});
      }
      if (tables.bias.defined()) outputs.grad_bias = ToHost(tables.bias.to(type), {problem.vocab_size});
      return outputs;
    });
  }

  absl::StatusOr<std::unique_ptr<SessionTensors>> OpenSession(const Problem& problem, const Inputs& inputs) {
    const auto both = [&](DType dtype) {
      return SaturatingSum({Bytes({problem.vocab_size, problem.hidden_size}, dtype),
                            problem.has_bias ? Bytes({problem.vocab_size}, dtype) : 0});
    };
    const std::int64_t needed = SaturatingSum({both(problem.LogpDtype()), device.cuda ? both(problem.dtype) : 0});
    if (absl::Status status = CheckMemory(needed); !status.ok()) return status;
    auto session = std::make_unique<Session>();
    const absl::StatusOr<Outputs> done = OnDevice(needed, Autocast::kNone, [&](c10::Device torch_device) {
      session->head = HeadOnDevice(problem, inputs, torch_device);
      session->sums = ZeroTables(session->head, Want());
      if (!device.cuda) session->held = inputs;
      return Outputs();
    });
    if (!done.ok()) return done.status();
    return session;
  }

  absl::Status ReadSession(const Session& session, std::byte* weight, std::byte* bias) {
    const auto copy = [](const at::Tensor& sum, std::byte* to) {
      if (sum.defined()) at::from_blob(to, sum.sizes(), at::TensorOptions().dtype(sum.scalar_type())).copy_(sum);
    };
    const auto work = [&](c10::Device /*torch_device*/) {
      copy(session.sums.weight, weight);
      copy(session.sums.bias, bias);
      return Outputs();
    };
    return OnDevice(0, Autocast::kNone, work).status();
  }

  absl::Status ZeroSession(Session* session) {
    const auto work = [&](c10::Device /*torch_device*/) {
      session->sums.weight.zero_();
      if (session->sums.bias.defined()) session->sums.bias.zero_();
      return Outputs();
    };
    return OnDevice(0, Autocast::kNone, work).status();
  }
};

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}
Engine::~Engine() = default;

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(Device device, int threads) {
  if (device.cuda) {
    std::string note;
    const int count = CudaDeviceCount(&note);
    if (device.index >= count) {
      return absl::FailedPreconditionError(absl::StrCat(device.Name(), " can't be used: ",
                                                        !BuiltWithCuda() ? "this build has no CUDA"
                                                        : note.empty()   ? absl::StrCat(count, " CUDA devices are here")
                                                                         : note));
    }
  }
  SetReproducibleNumerics();
  if (threads > 0) at::set_num_threads(threads);
  auto state = std::make_unique<State>();
  state->device = device;
  return std::unique_ptr<Engine>(new Engine(std::move(state)));
}

absl::StatusOr<Support> Engine::Supports(const Problem& problem, const Options& options) const {
  const absl::StatusOr<const Variant*> variant = FindVariant(options.variant);
  if (!variant.ok()) return variant.status();
  return (*variant)->Supports(problem, options, state_->device);
}

absl::StatusOr<std::int64_t> Engine::EstimateBytes(const Problem& problem, const Options& options, Want want) const {
  const absl::StatusOr<const Variant*> variant = FindVariant(options.variant);
  if (!variant.ok()) return variant.status();
  return State::Estimate(**variant, problem, options, want);
}

absl::StatusOr<Outputs> Engine::Forward(const Problem& problem, const Options& options, const Inputs& inputs,
                                        const ContinueCheck& check) {
  Problem forward = problem;
  forward.has_grad_logp = false;
  return state_->Run(forward, options, {false, false, false}, inputs, check);
}

absl::StatusOr<Outputs> Engine::Gradient(const Problem& problem, const Options& options, Want want,
                                         const Inputs& inputs, const ContinueCheck& check) {
  return state_->Run(problem, options, want, inputs, check);
}

absl::StatusOr<std::unique_ptr<ChunkedGradient>> Engine::Begin(const Problem& problem, const Options& options,
                                                               Want want, const Inputs& inputs) {
  return state_->Begin(problem, options, want, inputs, nullptr);
}

absl::StatusOr<Outputs> Engine::AddChunk(ChunkedGradient* gradient, const std::byte* hidden) {
  return state_->AddChunk(static_cast<State::Chunked*>(gradient), hidden);
}

absl::StatusOr<Outputs> Engine::Finish(ChunkedGradient* gradient) {
  return state_->Finish(static_cast<State::Chunked*>(gradient), nullptr);
}

absl::StatusOr<std::unique_ptr<SessionTensors>> Engine::OpenSession(const Problem& problem, const Inputs& inputs) {
  return state_->OpenSession(problem, inputs);
}

absl::StatusOr<Outputs> Engine::AddToSession(SessionTensors* session, const Problem& problem, const Options& options,
                                             Want want, const Inputs& inputs, const ContinueCheck& check) {
  return state_->Run(problem, options, want, inputs, check, static_cast<State::Session*>(session));
}

absl::StatusOr<std::unique_ptr<ChunkedGradient>> Engine::BeginInSession(const SessionTensors& session,
                                                                        const Problem& problem, const Options& options,
                                                                        Want want, const Inputs& inputs) {
  return state_->Begin(problem, options, want, inputs, static_cast<const State::Session*>(&session));
}

absl::StatusOr<Outputs> Engine::FinishInSession(ChunkedGradient* gradient, SessionTensors* session) {
  return state_->Finish(static_cast<State::Chunked*>(gradient), static_cast<State::Session*>(session));
}

absl::Status Engine::ReadSession(const SessionTensors& session, std::byte* weight, std::byte* bias) {
  return state_->ReadSession(static_cast<const State::Session&>(session), weight, bias);
}

absl::Status Engine::ZeroSession(SessionTensors* session) {
  return state_->ZeroSession(static_cast<State::Session*>(session));
}

absl::StatusOr<std::int64_t> Engine::FreeBytes() const { return state_->FreeBytes(); }

void Engine::ReleaseCache() {
  if (state_->device.cuda && state_->healthy) ReleaseCudaCache();
}

bool Engine::Healthy() const { return state_->healthy; }

}  // namespace keval::linear_logp
