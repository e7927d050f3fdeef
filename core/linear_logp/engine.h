// The operator on one device, over host memory: what the server's executor and the worker call. Torch-free header.
#ifndef KEVAL_CORE_LINEAR_LOGP_ENGINE_H_
#define KEVAL_CORE_LINEAR_LOGP_ENGINE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/shape.h"
#include "core/linear_logp/problem.h"

namespace keval::linear_logp {

// A contiguous tensor in host memory. `owner` keeps `data` alive; copies share it.
struct HostTensor {
  TensorSpec spec;
  const std::byte* data = nullptr;
  std::shared_ptr<const void> owner;
};

// Inputs in host memory, contiguous, of the specs that `problem` was validated from; `grad_logp` may be a single
// element read for every token (grad_logp_is_scalar), as a stride-0 view is.
struct Inputs {
  HostTensor hidden;
  HostTensor weight;
  std::optional<HostTensor> bias;
  HostTensor targets;
  std::optional<HostTensor> grad_logp;
  bool grad_logp_is_scalar = false;
};

struct Dispatch {
  std::string requested_variant;
  std::string variant;
  std::string path;    // E.g. "addmm_ in place"; "matmul, then add".
  std::string reason;  // Why; names a fallback as such.
  bool fallback = false;
  std::int64_t chunk_tokens = 0;
  std::int64_t chunks = 0;
};

struct Outputs {
  HostTensor logp;
  std::optional<HostTensor> grad_hidden;
  std::optional<HostTensor> grad_weight;
  std::optional<HostTensor> grad_bias;
  Dispatch dispatch;
};

// Asked between chunks; a non-OK answer (CANCELLED, DEADLINE_EXCEEDED) ends the call with that status.
using ContinueCheck = std::function<absl::Status()>;

// Which of the two production paths a variant says it is, bit for bit; P1 to P8 are checked of those that claim one.
enum class ProductionPath : std::uint8_t { kNone, kMatmulAdd, kAddmm };

struct VariantDescription {
  std::string name;
  std::string description;
  bool exact_target = false;  // C14.
  double epsilon = 0;         // C2's, where the variant declares its own; 0: the portable one.
  bool cpu = false;
  bool cuda = false;
  ProductionPath production_path = ProductionPath::kNone;
  bool takes_chunks = false;  // Tokens may come a chunk of P1 at a time, with the bits of one call: Engine::Begin.
};

// Every variant this build knows, in registry order.
std::vector<VariantDescription> DescribeVariants();

struct Support {
  bool supported = false;
  std::string reason;     // Why it declines, or that and why it would fall back.
  bool fallback = false;  // Supported, but not by the path that the variant is named for; refused by force_variant.
};

struct Device {
  bool cuda = false;
  int index = 0;
  // "cpu", "cuda:0".
  std::string Name() const;
};

// "cpu" or "cuda:N". INVALID_ARGUMENT (field "device") for other text.
absl::StatusOr<Device> ParseDevice(absl::string_view text);

struct DeviceDescription {
  Device device;
  std::string model;
  std::string uuid;                // "GPU-…" on a GPU.
  std::string compute_capability;  // "9.0".
  std::int64_t memory_bytes = 0;
  std::int64_t free_bytes = 0;
};

// Devices that this build can use here: CUDA devices first, then the CPU. `note` says why no CUDA device is listed
// where the build has CUDA ("built with CUDA, no device found").
struct Devices {
  std::vector<DeviceDescription> devices;
  std::string note;
};
Devices ListDevices();

std::string TorchVersion();
bool BuiltWithCuda();

// A gradient whose hidden comes a chunk at a time: what the engine keeps of it between two chunks, on its device. Made
// and used by one engine; may be destroyed on any thread.
class ChunkedGradient {
 public:
  virtual ~ChunkedGradient() = default;
};

// What a gradient session keeps on an engine's device: weight and bias, and the sums of their gradients over
// micro-batches, in the accumulation type. Made and used by one engine; may be destroyed on any thread.
class SessionTensors {
 public:
  virtual ~SessionTensors() = default;
};

// Owner: one executor or worker thread, which makes every call; not thread-safe. Never lets a c10::Error out.
class Engine {
 public:
  // FAILED_PRECONDITION where the device can't be used. `threads`: intra-op threads on a CPU, 0 for the default.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(Device device, int threads = 0);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // What the variant says of this problem. NOT_FOUND is INVALID_ARGUMENT (field "variant").
  absl::StatusOr<Support> Supports(const Problem& problem, const Options& options) const;

  // Bytes on the device for inputs, outputs and scratch; an upper estimate.
  absl::StatusOr<std::int64_t> EstimateBytes(const Problem& problem, const Options& options, Want want) const;

  // logp alone. Errors: INVALID_ARGUMENT; FAILED_PRECONDITION (device, dtype or variant can't); RESOURCE_EXHAUSTED
  // naming bytes needed and free, before anything is allocated, or after the allocator failed (then all was freed
  // again); ABORTED for a sticky device error: the engine answers every later call with it (see Healthy).
  absl::StatusOr<Outputs> Forward(const Problem& problem, const Options& options, const Inputs& inputs,
                                  const ContinueCheck& check);

  // logp and the gradients wanted; REQUIRES problem.has_grad_logp. Errors as Forward.
  absl::StatusOr<Outputs> Gradient(const Problem& problem, const Options& options, Want want, const Inputs& inputs,
                                   const ContinueCheck& check);

  // The same with hidden a chunk at a time and its bits unchanged: Begin, AddChunk for each chunk of P1 in order,
  // Finish. Other requests may run in between. `inputs.hidden` is not looked at. Null where the problem's variant needs
  // all tokens at once, or there are none. Without problem.has_grad_logp it is a forward. Errors as Forward, in each
  // call; after an error the rest must not be called.
  absl::StatusOr<std::unique_ptr<ChunkedGradient>> Begin(const Problem& problem, const Options& options, Want want,
                                                         const Inputs& inputs);
  // `hidden`: the chunk's rows. logp and, where wanted, grad_hidden of its tokens alone, [tokens] and [tokens, D].
  absl::StatusOr<Outputs> AddChunk(ChunkedGradient* gradient, const std::byte* hidden);
  // grad_weight and grad_bias where wanted, and how everything ran; logp stays empty.
  absl::StatusOr<Outputs> Finish(ChunkedGradient* gradient);

  // A session of `inputs.weight` and, where the problem has one, `inputs.bias`, with sums of zero; of the problem's
  // tokens nothing is looked at. On a CPU the two stay where they are, and their owners are held. RESOURCE_EXHAUSTED as
  // Forward.
  absl::StatusOr<std::unique_ptr<SessionTensors>> OpenSession(const Problem& problem, const Inputs& inputs);
  // Gradient, with the session's weight and bias in the place of `inputs`'. What is wanted of their gradients is not
  // returned but added to the sums, in one step and as the last thing: an error, `check`'s too, leaves them as they
  // were. Of the problem the session's sizes and dtype are REQUIRED.
  absl::StatusOr<Outputs> AddToSession(SessionTensors* session, const Problem& problem, const Options& options,
                                       Want want, const Inputs& inputs, const ContinueCheck& check);
  // Begin and Finish likewise, with AddChunk between them; only FinishInSession changes the sums. The session must
  // outlive the gradient.
  absl::StatusOr<std::unique_ptr<ChunkedGradient>> BeginInSession(const SessionTensors& session, const Problem& problem,
                                                                  const Options& options, Want want,
                                                                  const Inputs& inputs);
  absl::StatusOr<Outputs> FinishInSession(ChunkedGradient* gradient, SessionTensors* session);
  // Copies the sums to `weight` [V, D] and, where there is one, `bias` [V]: host memory, 64-byte aligned.
  absl::Status ReadSession(const SessionTensors& session, std::byte* weight, std::byte* bias);
  absl::Status ZeroSession(SessionTensors* session);

  // Bytes that a call could get on the device now. FAILED_PRECONDITION where the device can't be asked, ABORTED where
  // it is lost.
  absl::StatusOr<std::int64_t> FreeBytes() const;

  // Gives the memory that the allocator keeps for later calls back to the device; nothing to do on a CPU.
  void ReleaseCache();

  // False after a sticky device error.
  bool Healthy() const;

 private:
  struct State;
  explicit Engine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace keval::linear_logp

#endif  // KEVAL_CORE_LINEAR_LOGP_ENGINE_H_
