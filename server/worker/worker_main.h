// The whole of the keval-worker program; the planted worker of the tests runs it too.
#ifndef KEVAL_SERVER_WORKER_WORKER_MAIN_H_
#define KEVAL_SERVER_WORKER_WORKER_MAIN_H_

#include <functional>

namespace keval::worker {

class Reply;  // Of worker.proto, whose header can't meet torch's.
class Request;

// The descriptors on which a worker finds its end of the control socket, and the shared page of RunningPage.
inline constexpr int kControlFd = 3;
inline constexpr int kRunningFd = 4;

// What the tests' planted worker does to the harness itself; nothing in the product.
struct WorkerHooks {
  std::function<void(const Request&)> before;  // Each request is handled.
  std::function<void(Reply*)> change;          // What is about to be sent.
};

// Answers requests on kControlFd until the other end goes. `argv[1]`: the process id of kevald, whose death is ours
// too. Returns an exit code.
int WorkerMain(int argc, char** argv, const WorkerHooks& hooks = {});

}  // namespace keval::worker

#endif  // KEVAL_SERVER_WORKER_WORKER_MAIN_H_
