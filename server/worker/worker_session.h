// What a worker does: requests in, replies out. Torch-free header.
#ifndef KEVAL_SERVER_WORKER_WORKER_SESSION_H_
#define KEVAL_SERVER_WORKER_WORKER_SESSION_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "base/running.h"
#include "core/measure/arm.h"
#include "core/measure/device_session.h"
#include "server/worker/worker.pb.h"

namespace keval::worker {

// Owner: the worker process's main thread, which makes every call. Never throws; a fault of an arm is a Failure reply,
// and only what kills a process (a signal, a call that never ends) shows otherwise.
class WorkerSession {
 public:
  using Emit = std::function<void(Reply)>;

  // `mark`: for whoever asks after this process's death; outlives the session.
  explicit WorkerSession(RunningMark* mark) : mark_(mark) {}

  // Emits the request's replies in order, the last one before it returns.
  void Handle(const Request& request, const Emit& emit);

 private:
  // Of a call that gave `status`.
  Reply Failed(absl::Status status) const;
  Reply Open(const Start& start);
  Reply MakeArm(const Prepare& prepare);
  Reply Measure(const RunBlock& block);
  // One call of the arm, awaited. Errors as Arm's.
  absl::Status RunToItsEnd();
  Reply Count();
  Reply CountDram();
  Reply CheckContract(const Contract& contract, const Emit& emit) const;
  Reply Describe() const;
  Reply TellMemory() const;

  RunningMark* const mark_;
  std::unique_ptr<measure::DeviceSession> session_;
  std::unique_ptr<measure::Arm> arm_;  // On session_, so it goes first.
};

}  // namespace keval::worker

#endif  // KEVAL_SERVER_WORKER_WORKER_SESSION_H_
