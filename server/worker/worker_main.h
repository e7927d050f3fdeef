// The whole of the keval-worker program; the planted worker of the tests runs it too.
#ifndef KEVAL_SERVER_WORKER_WORKER_MAIN_H_
#define KEVAL_SERVER_WORKER_WORKER_MAIN_H_

namespace keval::worker {

// The descriptor on which a worker finds its end of the control socket.
inline constexpr int kControlFd = 3;

// Answers requests on kControlFd until the other end goes. `argv[1]`: the process id of kevald, whose death is ours
// too. Returns an exit code.
int WorkerMain(int argc, char** argv);

}  // namespace keval::worker

#endif  // KEVAL_SERVER_WORKER_WORKER_MAIN_H_
