// The seam of the client: everything that a server does, as values in and StatusOr out. Client forwards to it; tests of
// programs that use keval put a mock in its place.
#ifndef KEVAL_CONNECTION_H_
#define KEVAL_CONNECTION_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "keval/call_options.h"
#include "keval/tensor.h"
#include "keval/v1/benchmark.pb.h"
#include "keval/v1/linear_logp.pb.h"
#include "keval/v1/server_info.pb.h"
#include "keval/v1/tensor.pb.h"

namespace keval {

// A tensor of a request: memory of the caller's, or the handle of one that the server keeps.
class Operand {
 public:
  Operand() = default;
  Operand(TensorView view) : view_(std::move(view)), given_(true) {}     // NOLINT: a view is an operand.
  Operand(const Tensor& tensor) : view_(tensor.view()), given_(true) {}  // NOLINT: so is a tensor.
  static Operand Handle(std::string handle) {
    Operand operand;
    operand.handle_ = std::move(handle);
    operand.given_ = true;
    return operand;
  }

  bool given() const { return given_; }
  const std::string& handle() const { return handle_; }  // Empty: `view` holds the tensor.
  const TensorView& view() const { return view_; }

 private:
  TensorView view_;
  std::string handle_;
  bool given_ = false;
};

// hidden [..., D], weight [V, D], bias [V] or not given, targets [...] int32 or int64, grad_logp [...] float32 (float64
// with float64 operands) or not given: then only logp is computed. Views may have any strides.
struct GradientParams {
  v1::LinearLogpOptions options;
  Operand hidden;
  Operand weight;
  Operand bias;
  Operand targets;
  Operand grad_logp;
  std::vector<v1::Want> want;  // Empty: every gradient that applies.
  // A micro-batch of this gradient session: weight and bias are the session's and not given, grad_logp is, and of the
  // gradients only grad_hidden is returned.
  std::string session;
  // 16 bytes that name the micro-batch, for a caller that may have to send it again after a failure. Empty: drawn for
  // the call, whose own attempts are then one micro-batch.
  std::string batch_id;
};

// The sums of a gradient session.
struct SessionSums {
  Tensor grad_weight;               // [V, D] float32, or float64 with a float64 weight.
  std::optional<Tensor> grad_bias;  // [V]; where the session has a bias.
  v1::GradientSession session;      // With the micro-batches that are in these sums.
};

struct SessionParams {
  std::string device;                           // "cpu" or "cuda:0"; empty: the server's first.
  Operand weight;                               // [V, D]
  Operand bias;                                 // [V] or not given.
  absl::Duration lease = absl::ZeroDuration();  // Zero: the server's default.
};

struct GradientResult {
  Tensor logp;                        // [...]
  std::optional<Tensor> grad_hidden;  // [..., D]; those that were wanted.
  std::optional<Tensor> grad_weight;  // [V, D]
  std::optional<Tensor> grad_bias;    // [V]
  v1::Dispatch dispatch;
  v1::Timing timing;
  v1::SessionBatchResult session_batch;  // Of a session's micro-batch.
};

struct WatchParams {
  std::string name;
  std::int64_t after_sequence = 0;
  bool progress = false;  // Also JobProgress events, which have no sequence number.
  // How long the server may stay out of reach before the watch gives up; the time starts again with every answer.
  absl::Duration reconnect_for = absl::Seconds(60);
};

struct ListJobsParams {
  std::int64_t limit = 0;   // At most so many, the newest; 0: all.
  std::string spec_digest;  // Only jobs of this digest; empty: any.
};

struct ReportFile {
  std::string name;  // report.json, samples.csv, diagnostics.csv or excluded.csv.
  std::string contents;
};

// Thread-safe. Errors are the server's own (proto/keval/v1 lists them for each call), with field, value and limit where
// the server named them (base/field_error.h); UNAVAILABLE where it can't be reached, DEADLINE_EXCEEDED, CANCELLED.
// Calls that may be repeated without harm are retried (MakeConnection), a session's micro-batches, Zero and Fetch by
// their ids among them; Put, CreateSession and Delete only where the server says that it did nothing.
class Connection {
 public:
  virtual ~Connection() = default;

  virtual absl::StatusOr<v1::ServerInfo> GetServerInfo(const CallOptions& options) = 0;
  // gRPC's health Check, which the plaintext health address answers too. `service`: "ready" (the server takes
  // requests), "live" (its process runs), or a device's name; NOT_FOUND for another.
  virtual absl::StatusOr<bool> IsServing(const std::string& service, const CallOptions& options) = 0;

  virtual absl::StatusOr<GradientResult> Gradient(const GradientParams& params, const CallOptions& options) = 0;
  virtual absl::StatusOr<v1::PlanResponse> Plan(const v1::PlanRequest& request, const CallOptions& options) = 0;
  // `row` is called for each row as it arrives, on the calling thread.
  virtual absl::Status CheckContract(const v1::CheckContractRequest& request,
                                     const std::function<void(const v1::ContractRow&)>& row,
                                     const CallOptions& options) = 0;

  virtual absl::StatusOr<v1::TensorInfo> PutTensor(const TensorView& tensor, absl::Duration lease,
                                                   const CallOptions& options) = 0;
  // The same, but asks first, by SHA-256, whether the server has the bytes already, and sends them only where it
  // hasn't. Pays where the network is slower than the hash (1 to 2 GB/s a core).
  virtual absl::StatusOr<v1::TensorInfo> PutTensorIfNew(const TensorView& tensor, absl::Duration lease,
                                                        const CallOptions& options) = 0;
  virtual absl::StatusOr<Tensor> GetTensor(const std::string& handle, const CallOptions& options) = 0;
  // Into memory of the caller's, which must be as large as the tensor: INVALID_ARGUMENT (field "destination"). Its
  // contents are undefined after a failure.
  virtual absl::StatusOr<v1::TensorInfo> GetTensorInto(const std::string& handle, absl::Span<std::byte> destination,
                                                       const CallOptions& options) = 0;
  virtual absl::StatusOr<v1::TensorInfo> StatTensor(const std::string& handle, const CallOptions& options) = 0;
  virtual absl::StatusOr<std::vector<v1::TensorInfo>> ListTensors(const CallOptions& options) = 0;
  virtual absl::StatusOr<v1::TensorInfo> TouchTensor(const std::string& handle, absl::Duration lease,
                                                     const CallOptions& options) = 0;
  virtual absl::Status DeleteTensor(const std::string& handle, const CallOptions& options) = 0;

  // A large weight or bias is stored first and let go of afterwards.
  virtual absl::StatusOr<v1::GradientSession> CreateSession(const SessionParams& params,
                                                            const CallOptions& options) = 0;
  virtual absl::StatusOr<v1::GradientSession> GetSession(const std::string& session, const CallOptions& options) = 0;
  virtual absl::StatusOr<std::vector<v1::GradientSession>> ListSessions(const CallOptions& options) = 0;
  virtual absl::StatusOr<v1::GradientSession> TouchSession(const std::string& session, absl::Duration lease,
                                                           const CallOptions& options) = 0;
  virtual absl::Status DeleteSession(const std::string& session, const CallOptions& options) = 0;
  virtual absl::StatusOr<v1::GradientSession> ZeroSession(const std::string& session, const CallOptions& options) = 0;
  // The sums, and with `reset` zero in their place, in one step. Where a resetting fetch fails on the way back, its
  // sums are still on the server, as stored tensors: `request_id` (16 bytes, as drawn for a call where it is empty)
  // brings them when the call is made again.
  virtual absl::StatusOr<SessionSums> FetchSession(const std::string& session, bool reset,
                                                   const std::string& request_id, const CallOptions& options) = 0;

  // A request without request_id gets a random one, so that a retry can't make a second job.
  virtual absl::StatusOr<v1::BenchmarkJob> CreateJob(v1::CreateJobRequest request, const CallOptions& options) = 0;
  virtual absl::StatusOr<v1::BenchmarkJob> GetJob(const std::string& name, const CallOptions& options) = 0;
  virtual absl::StatusOr<std::vector<v1::BenchmarkJob>> ListJobs(const ListJobsParams& params,
                                                                 const CallOptions& options) = 0;
  // Follows the job until it ends, each event once and in order, also across server restarts.
  virtual absl::Status WatchJob(const WatchParams& params, const std::function<void(const v1::JobEvent&)>& event,
                                const CallOptions& options) = 0;
  virtual absl::StatusOr<v1::BenchmarkJob> CancelJob(const std::string& name, const CallOptions& options) = 0;
  // The files of these names, or every one where there are none; digests checked (DATA_LOSS where one differs).
  virtual absl::StatusOr<std::vector<ReportFile>> GetReport(const std::string& name,
                                                            const std::vector<std::string>& file_names,
                                                            const CallOptions& options) = 0;
};

struct ConnectionOptions {
  std::string server = "127.0.0.1:7400";               // host:port, [v6]:port or unix:/abs/path.
  absl::Duration control_timeout = absl::Seconds(30);  // Of calls that carry no tensors and wait for nobody's work.
  int max_attempts = 4;                                // Of calls that may be repeated.
  absl::Duration initial_backoff = absl::Milliseconds(100);
  absl::Duration max_backoff = absl::Seconds(5);
  absl::Duration bulk_probe_timeout = absl::Seconds(1);
  int bulk_connections = 2;  // 1: a large tensor isn't stored over two connections at once.
  // Files, all PEM but the token. TLS is used where `tls_ca`, the CA of the server's certificate, is given, but never
  // for a Unix socket. `tls_cert` and `tls_key` are the caller's own. They are read by MakeConnection.
  std::string tls_ca;
  std::string tls_cert;
  std::string tls_key;
  std::string tls_server_name;  // The name in the server's certificate, where it isn't the host of `server`.
  // One line, a bearer token; read for each call. A file that others may read is refused, as for `tls_key`; so is a
  // token that would go to another machine without TLS. Without it a call over a Unix socket shows who this process's
  // user is, where the server asks for that.
  std::string token_file;
  // Told once what a person may want to know, e.g. that the bulk address doesn't answer. May be empty.
  std::function<void(const std::string&)> notice;
};

// A connection to a server; channels connect at the first call. INVALID_ARGUMENT (field "server") for an address that
// is none, or naming the file's option for one that can't be used. Proxies named by the environment are never used for
// loopback addresses and Unix sockets.
absl::StatusOr<std::shared_ptr<Connection>> MakeConnection(ConnectionOptions options);

}  // namespace keval

#endif  // KEVAL_CONNECTION_H_
