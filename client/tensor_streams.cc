#include "client/tensor_streams.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "client/grpc_status.h"

namespace keval {
namespace {

constexpr std::size_t kFrameBytes = std::size_t{1} << 20;

// Writes `payload` as frames of `Request`, then the trailer with its digest, then half-closes. False where a write
// failed: the server has ended the call, and its status says why.
template <typename Request, typename Stream>
bool WritePayload(Stream& stream, const std::vector<ConstBytes>& payload) {
  Sha256 digest;
  std::uint64_t offset = 0;
  Request frame;
  for (const ConstBytes& tensor : payload) {
    for (std::size_t begin = 0; begin < tensor.size(); begin += kFrameBytes) {
      const ConstBytes piece = tensor.subspan(begin, kFrameBytes);
      digest.Update(piece.data(), piece.size());
      frame.set_offset(offset);
      frame.set_data(piece.data(), piece.size());
      if (!stream.Write(frame)) return false;
      offset += piece.size();
    }
  }
  Request last;
  last.mutable_trailer()->set_sha256(digest.FinishBytes());
  return stream.Write(last) && stream.WritesDone();
}

// Puts the frames of an answer where they belong. Not thread-safe.
class FrameSink {
 public:
  explicit FrameSink(std::vector<MutableBytes> destinations) : destinations_(std::move(destinations)) {}

  absl::Status Take(std::uint64_t offset, const std::string& data) {
    if (offset != taken_) return absl::DataLossError("the server's frames are out of order");
    digest_.Update(data.data(), data.size());
    taken_ += data.size();
    std::size_t begin = 0;
    while (begin < data.size()) {
      while (current_ < destinations_.size() && filled_ == destinations_[current_].size()) {
        ++current_;
        filled_ = 0;
      }
      if (current_ == destinations_.size()) return absl::DataLossError("the server sent more bytes than it declared");
      const MutableBytes to = destinations_[current_].subspan(filled_);
      const std::size_t count = std::min(to.size(), data.size() - begin);
      std::memcpy(to.data(), data.data() + begin, count);
      begin += count;
      filled_ += count;
    }
    return absl::OkStatus();
  }

  // `sha256` may be empty: not said.
  absl::Status Finish(const std::string& sha256) {
    std::uint64_t declared = 0;
    for (const MutableBytes& destination : destinations_) declared += destination.size();
    if (taken_ != declared) {
      return absl::DataLossError(absl::StrCat("the server sent ", taken_, " of ", declared, " bytes"));
    }
    if (!sha256.empty() && sha256 != digest_.FinishBytes()) {
      return absl::DataLossError("the digest of what arrived differs from the server's");
    }
    return absl::OkStatus();
  }

 private:
  std::vector<MutableBytes> destinations_;
  std::size_t current_ = 0;
  std::size_t filled_ = 0;  // Of the current destination.
  std::uint64_t taken_ = 0;
  Sha256 digest_;
};

// The server's status where the call failed; `mine` where the client gave up on an answer.
absl::Status EndOf(const absl::Status& mine, const grpc::Status& servers, AttemptContext& context) {
  return mine.ok() ? FromGrpc(servers, *context) : mine;
}

}  // namespace

absl::StatusOr<v1::StreamGradientDone> RunStreamGradient(v1::LinearLogpService::Stub& service, AttemptContext& context,
                                                         const v1::GradientRequest& header,
                                                         const std::vector<ConstBytes>& payload,
                                                         const Stub::Allocate& allocate) {
  const auto stream = service.StreamGradient(context.get());
  // Sends while this thread reads: a server that answers, or refuses, before it has everything must not find nobody
  // reading.
  std::thread sender([&] {
    v1::StreamGradientRequest first;
    *first.mutable_header() = header;
    if (stream->Write(first)) WritePayload<v1::StreamGradientRequest>(*stream, payload);
  });
  absl::Status mine;
  std::optional<FrameSink> sink;
  std::optional<v1::StreamGradientDone> done;
  v1::StreamGradientResponse response;
  while (mine.ok() && stream->Read(&response)) {
    if (response.has_header()) {
      auto destinations = sink ? absl::DataLossError("the server sent two headers") : allocate(response.header());
      mine = destinations.status();
      if (mine.ok()) sink.emplace(*std::move(destinations));
    } else if (!sink) {
      mine = absl::DataLossError("the server's answer has no header");
    }
    if (mine.ok() && !response.data().empty()) mine = sink->Take(response.offset(), response.data());
    if (mine.ok() && response.has_done()) done = response.done();
  }
  if (!mine.ok()) context.get()->TryCancel();
  sender.join();
  const grpc::Status status = stream->Finish();
  if (auto end = EndOf(mine, status, context); !end.ok()) return end;
  if (!done) return absl::DataLossError("the server's answer has no end");
  if (auto complete = sink->Finish(done->sha256()); !complete.ok()) return complete;
  return *std::move(done);
}

absl::StatusOr<v1::TensorInfo> RunPut(v1::TensorService::Stub& service, AttemptContext& context,
                                      const v1::PutHeader& header, ConstBytes payload) {
  v1::TensorInfo info;
  const auto stream = service.Put(context.get(), &info);
  v1::PutRequest first;
  *first.mutable_header() = header;
  if (stream->Write(first)) WritePayload<v1::PutRequest>(*stream, {payload});
  const grpc::Status status = stream->Finish();
  if (!status.ok()) return FromGrpc(status, *context);
  return info;
}

absl::Status RunGet(v1::TensorService::Stub& service, AttemptContext& context, const v1::GetTensorRequest& request,
                    const Stub::AllocateTensor& allocate) {
  const auto stream = service.Get(context.get(), request);
  absl::Status mine;
  std::optional<FrameSink> sink;
  std::string sha256;
  v1::GetTensorResponse response;
  while (mine.ok() && stream->Read(&response)) {
    if (response.has_header()) {
      auto destination = sink ? absl::DataLossError("the server sent two headers") : allocate(response.header());
      mine = destination.status();
      if (mine.ok()) sink.emplace(std::vector<MutableBytes>{*destination});
      sha256 = response.header().sha256();
    } else if (!sink) {
      mine = absl::DataLossError("the server's answer has no header");
    }
    if (mine.ok() && !response.data().empty()) mine = sink->Take(response.offset(), response.data());
  }
  if (!mine.ok()) context.get()->TryCancel();
  const grpc::Status status = stream->Finish();
  if (auto end = EndOf(mine, status, context); !end.ok()) return end;
  if (!sink) return absl::DataLossError("the server's answer has no header");
  return sink->Finish(sha256);
}

}  // namespace keval
