// Tensors on their way into the store in several streams at once.
#ifndef KEVAL_SERVER_TENSOR_UPLOADS_H_
#define KEVAL_SERVER_TENSOR_UPLOADS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/shape.h"
#include "server/host_buffer.h"
#include "server/tensor_store.h"

namespace keval::server {

// An upload exists from its first part's header to its last part's end, or until a part fails or nobody has been at
// work on it for a while. Thread-safe; does not own the store; must outlive its shares.
class TensorUploads {
 public:
  // `idle_limit`: how long an upload may wait for its next part.
  explicit TensorUploads(TensorStore* store, absl::Duration idle_limit = absl::Seconds(60))
      : store_(store), idle_limit_(idle_limit) {}

  // What one stream brings.
  struct Part {
    std::string upload_id;
    TensorSpec spec;         // Of the whole tensor.
    std::int64_t bytes = 0;  // Of the whole tensor.
    absl::Duration lease;
    std::int64_t begin = 0;
    std::int64_t size = 0;
  };

 private:
  struct Upload;

 public:
  // One stream's hold on an upload; dropping it without Complete fails the upload. Owner: one call.
  class Share {
   public:
    ~Share();
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

    std::byte* data() const;  // Of the part: `size` bytes that are this stream's alone.
    // OK while the other parts are well; ABORTED otherwise.
    absl::Status Check() const;
    // The part is in. Its tensor where it was the last one, nullopt where others are to come; ABORTED.
    absl::StatusOr<std::optional<StoredTensor>> Complete();

   private:
    friend class TensorUploads;
    Share(TensorUploads* uploads, std::shared_ptr<Upload> upload, std::int64_t begin, std::int64_t size)
        : uploads_(uploads), upload_(std::move(upload)), begin_(begin), size_(size) {}

    TensorUploads* const uploads_;
    const std::shared_ptr<Upload> upload_;
    const std::int64_t begin_;
    const std::int64_t size_;
    bool complete_ = false;
  };

  // INVALID_ARGUMENT: an id that isn't 16 bytes; a part outside the tensor; one that overlaps another; a spec that
  // isn't the other parts'. RESOURCE_EXHAUSTED: as TensorStore::Allocate, or too many uploads. ABORTED: another part
  // failed.
  absl::StatusOr<std::unique_ptr<Share>> Join(absl::string_view principal, const Part& part);

  // Gives back the memory of uploads whose next part doesn't come.
  void DropIdle();

 private:
  using Key = std::pair<std::string, std::string>;  // Principal and id.

  absl::StatusOr<std::shared_ptr<Upload>> FindOrBegin(const Key& key, const Part& part);
  static absl::Status Reserve(Upload* upload, const Part& part);

  TensorStore* const store_;
  const absl::Duration idle_limit_;
  Mutex mutex_;
  CondVar changed_;
  std::map<Key, std::shared_ptr<Upload>> uploads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_TENSOR_UPLOADS_H_
