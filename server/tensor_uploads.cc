#include "server/tensor_uploads.h"

#include <cstdint>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "server/proto_convert.h"

namespace keval::server {
namespace {

constexpr std::size_t kIdBytes = 16;
constexpr std::size_t kMaxUploads = 1024;

absl::Status PartFailed() {
  return WithField(absl::AbortedError("part: another part of this upload failed or never came; begin again with a new "
                                      "upload_id"),
                   {"part", "of an upload that has ended", ""});
}

}  // namespace

// `principal`, `spec`, `bytes` and `lease` never change; the rest is guarded by TensorUploads::mutex_.
struct TensorUploads::Upload {
  Key key;
  TensorSpec spec;
  std::int64_t bytes = 0;
  absl::Duration lease;

  std::shared_ptr<HostBuffer> buffer;          // Null while the first part's stream allocates it.
  std::map<std::int64_t, std::int64_t> parts;  // Begin to size: those that came or are coming.
  std::int64_t complete_bytes = 0;
  int streams = 0;  // At work.
  bool failed = false;
  absl::Time idle_since;
};

absl::Status TensorUploads::Reserve(Upload* upload, const Part& part) {
  if (part.spec != upload->spec) {
    return InvalidField("spec", SpecText(part.spec), absl::StrCat(SpecText(upload->spec), ", as the other parts say"));
  }
  const auto next = upload->parts.lower_bound(part.begin);
  const bool into_next = next != upload->parts.end() && part.begin + part.size > next->first;
  const bool from_previous =
      next != upload->parts.begin() && std::prev(next)->first + std::prev(next)->second > part.begin;
  // Two parts at one begin overlap even where one is empty: the second would be counted twice.
  if (into_next || from_previous || (next != upload->parts.end() && next->first == part.begin)) {
    return InvalidField("part", absl::StrCat("[", part.begin, ", ", part.begin + part.size, ")"),
                        "apart from the upload's other parts");
  }
  upload->parts.emplace(part.begin, part.size);
  ++upload->streams;
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<TensorUploads::Upload>> TensorUploads::FindOrBegin(const Key& key, const Part& part) {
  std::shared_ptr<Upload> upload;
  {
    MutexLock lock(&mutex_);
    const auto it = uploads_.find(key);
    if (it != uploads_.end()) {
      const std::shared_ptr<Upload> found = it->second;
      // Bounded: the stream that allocates either succeeds or fails the upload.
      while (found->buffer == nullptr && !found->failed) changed_.Wait(&mutex_);
      if (found->failed) return PartFailed();
      if (absl::Status status = Reserve(found.get(), part); !status.ok()) return status;
      return found;
    }
    if (uploads_.size() >= kMaxUploads) {
      return absl::ResourceExhaustedError(absl::StrCat("uploads in parts: ", kMaxUploads, " are under way already"));
    }
    upload = std::make_shared<Upload>();
    upload->key = key;
    upload->spec = part.spec;
    upload->bytes = part.bytes;
    upload->lease = part.lease;
    if (absl::Status status = Reserve(upload.get(), part); !status.ok()) return status;
    uploads_.emplace(key, upload);
  }
  absl::StatusOr<std::shared_ptr<HostBuffer>> buffer = store_->Allocate(key.first, part.bytes);  // Not under the lock.
  MutexLock lock(&mutex_);
  changed_.SignalAll();
  if (!buffer.ok()) {
    upload->failed = true;
    uploads_.erase(key);
    return buffer.status();
  }
  upload->buffer = *std::move(buffer);
  return upload;
}

absl::StatusOr<std::unique_ptr<TensorUploads::Share>> TensorUploads::Join(absl::string_view principal,
                                                                          const Part& part) {
  if (part.upload_id.size() != kIdBytes) {
    return InvalidField("upload_id", absl::StrCat(part.upload_id.size(), " bytes"), absl::StrCat(kIdBytes, " bytes"));
  }
  if (part.begin < 0 || part.size < 0 || part.begin > part.bytes || part.size > part.bytes - part.begin) {
    return InvalidField("part", absl::StrCat(part.size, " bytes from ", part.begin),
                        absl::StrCat("within the tensor's ", part.bytes, " bytes"));
  }
  DropIdle();
  absl::StatusOr<std::shared_ptr<Upload>> upload = FindOrBegin({std::string(principal), part.upload_id}, part);
  if (!upload.ok()) return upload.status();
  return absl::WrapUnique(new Share(this, *std::move(upload), part.begin, part.size));
}

TensorUploads::Share::~Share() {
  MutexLock lock(&uploads_->mutex_);
  --upload_->streams;
  upload_->idle_since = absl::Now();
  if (complete_ || upload_->failed) return;
  upload_->failed = true;
  uploads_->uploads_.erase(upload_->key);
}

std::byte* TensorUploads::Share::data() const { return upload_->buffer->data() + begin_; }

absl::Status TensorUploads::Share::Check() const {
  MutexLock lock(&uploads_->mutex_);
  return upload_->failed ? PartFailed() : absl::OkStatus();
}

absl::StatusOr<std::optional<StoredTensor>> TensorUploads::Share::Complete() {
  {
    MutexLock lock(&uploads_->mutex_);
    if (upload_->failed) return PartFailed();
    complete_ = true;
    upload_->complete_bytes += size_;
    if (upload_->complete_bytes < upload_->bytes) return std::nullopt;
    uploads_->uploads_.erase(upload_->key);
  }
  absl::StatusOr<StoredTensor> tensor =
      uploads_->store_->Insert(upload_->key.first, upload_->spec, upload_->buffer, {}, upload_->lease);
  if (!tensor.ok()) return tensor.status();
  return *std::move(tensor);
}

void TensorUploads::DropIdle() {
  std::vector<std::shared_ptr<Upload>> dropped;  // Their memory is freed after the lock.
  MutexLock lock(&mutex_);
  for (auto it = uploads_.begin(); it != uploads_.end();) {
    Upload& upload = *it->second;
    if (upload.streams == 0 && absl::Now() - upload.idle_since > idle_limit_) {
      upload.failed = true;
      dropped.push_back(std::move(it->second));
      it = uploads_.erase(it);
    } else {
      ++it;
    }
  }
}

}  // namespace keval::server
