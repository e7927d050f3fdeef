// A queue between two threads that makes the faster one wait.
#ifndef KEVAL_SERVER_BOUNDED_QUEUE_H_
#define KEVAL_SERVER_BOUNDED_QUEUE_H_

#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

#include "base/mutex.h"

namespace keval::server {

// Thread-safe.
template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(std::size_t limit) : limit_(limit) {}

  // Waits for room. False after Close or Abort: nothing was put.
  bool Push(T item) {
    MutexLock lock(&mutex_);
    while (!closed_ && items_.size() >= limit_) changed_.Wait(&mutex_);
    if (closed_) return false;
    items_.push_back(std::move(item));
    changed_.SignalAll();
    return true;
  }

  // Waits for an item. nullopt when closed and empty.
  std::optional<T> Pop() {
    MutexLock lock(&mutex_);
    while (!closed_ && items_.empty()) changed_.Wait(&mutex_);
    if (items_.empty()) return std::nullopt;
    T item = std::move(items_.front());
    items_.pop_front();
    changed_.SignalAll();
    return item;
  }

  // Nothing more is put; what is there can be taken.
  void Close() { End(false); }
  // Nothing more is put or taken.
  void Abort() { End(true); }

 private:
  void End(bool drop) {
    std::deque<T> dropped;  // Destroyed after the lock.
    MutexLock lock(&mutex_);
    closed_ = true;
    if (drop) dropped.swap(items_);
    changed_.SignalAll();
  }

  const std::size_t limit_;
  Mutex mutex_;
  CondVar changed_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<T> items_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_BOUNDED_QUEUE_H_
