#include "server/grpc/stall_watch.h"

#include <grpc/grpc.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"

namespace keval::server {

StallWatch::StallWatch(std::chrono::milliseconds limit) : limit_(limit), thread_([this] { Watch(); }) {}

StallWatch::~StallWatch() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    stop_.SignalAll();
  }
  thread_.join();
}

StallWatch::Guard::Guard(StallWatch* watch, grpc::ServerContext* context, Patience* patience)
    : watch_(watch), context_(context), patience_(patience), deadline_(begin_ + watch->limit_ - patience->waited_) {
  MutexLock lock(&watch_->mutex_);
  place_ = watch_->guards_.insert(watch_->guards_.end(), this);
}

StallWatch::Guard::~Guard() {
  patience_->waited_ += std::chrono::steady_clock::now() - begin_;
  MutexLock lock(&watch_->mutex_);
  watch_->guards_.erase(place_);
}

void StallWatch::Watch() {
  const std::string message =
      absl::StrCat("the stream stalled: its peer neither sent nor read any bytes for ", limit_.count(), " ms");
  const auto interval = std::clamp(limit_ / 10, std::chrono::milliseconds(10), std::chrono::milliseconds(1000));
  MutexLock lock(&mutex_);
  while (!stopping_) {
    const auto now = std::chrono::steady_clock::now();
    for (Guard* const guard : guards_) {
      if (guard->ended_ || now < guard->deadline_) continue;
      guard->ended_ = true;
      // ServerContext::TryCancel would tell the peer CANCELLED; this is the same with a status that says why. Under the
      // lock, since the call lives only as long as its guard.
      grpc_call_cancel_with_status(guard->context_->c_call(), GRPC_STATUS_DEADLINE_EXCEEDED, message.c_str(), nullptr);
    }
    stop_.WaitUntil(&mutex_, now + interval);
  }
}

}  // namespace keval::server
