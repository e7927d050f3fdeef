// Ends streams whose peer has stopped sending or reading, so that nobody holds memory and a thread for nothing.
#ifndef KEVAL_SERVER_GRPC_STALL_WATCH_H_
#define KEVAL_SERVER_GRPC_STALL_WATCH_H_

#include <grpcpp/server_context.h>

#include <chrono>
#include <list>
#include <optional>
#include <thread>

#include "base/mutex.h"

namespace keval::server {

// One thread for all streams. Thread-safe; must outlive its guards.
class StallWatch {
 public:
  explicit StallWatch(std::chrono::milliseconds limit);
  ~StallWatch();
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;

  // How long one direction of a stream has blocked since bytes last came through: messages without any are no progress,
  // or a peer could hold the stream open with them. Owner: the thread that blocks.
  class Patience {
   public:
    void Renew() { waited_ = {}; }

   private:
    friend class StallWatch;
    std::chrono::steady_clock::duration waited_{};
  };

  // Around a read from or a write to the peer that may block: when it and those before it on `patience` last longer
  // than the limit, the call ends with DEADLINE_EXCEEDED (the blocked operation then returns false). Owner: the thread
  // that blocks.
  class Guard {
   public:
    Guard(StallWatch* watch, grpc::ServerContext* context, Patience* patience);
    ~Guard();
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    friend class StallWatch;
    StallWatch* const watch_;
    grpc::ServerContext* const context_;
    Patience* const patience_;
    const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
    const std::chrono::steady_clock::time_point deadline_;
    bool ended_ = false;  // Guarded by StallWatch::mutex_.
    std::list<Guard*>::iterator place_;
  };

 private:
  void Watch();

  const std::chrono::milliseconds limit_;
  Mutex mutex_;
  CondVar stop_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::list<Guard*> guards_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_GRPC_STALL_WATCH_H_
