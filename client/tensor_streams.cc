#include "client/tensor_streams.h"

#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/sync_stream.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/grpc_status.h"
#include "wire/message.h"
#include "wire/payload_digest.h"

namespace keval {
namespace {

constexpr char kStreamGradient[] = "/keval.v1.LinearLogpService/StreamGradient";
constexpr char kPut[] = "/keval.v1.TensorService/Put";
constexpr char kGet[] = "/keval.v1.TensorService/Get";

template <typename Proto>
using Sent = wire::SentMessage<Proto>;
template <typename Proto>
using Received = wire::ReceivedMessage<Proto>;

// Writes `payload` as frames of `Request`, then the trailer with its digest, then half-closes. False where a write
// failed: the server has ended the call, and its status says why.
template <typename Request, typename Stream>
bool WritePayload(Stream& stream, const std::vector<ConstBytes>& payload, v1::PayloadDigest kind,
                  const std::shared_ptr<const void>& lent) {
  wire::PayloadDigest digest(kind);
  std::uint64_t offset = 0;
  for (const ConstBytes& tensor : payload) {
    for (std::size_t begin = 0; begin < tensor.size(); begin += wire::kSentFrameBytes) {
      const ConstBytes piece = tensor.subspan(begin, wire::kSentFrameBytes);
      digest.Update(piece.data(), piece.size());
      if (!stream.Write(Sent<Request>{nullptr, {offset, piece, lent}})) return false;
      offset += piece.size();
    }
  }
  Request last;
  *last.mutable_trailer() = digest.Finish();
  return stream.Write(Sent<Request>{&last, {}}) && stream.WritesDone();
}

// Puts the frames of an answer where they belong: each tensor's in ascending order, whatever comes between them. Not
// thread-safe.
class FrameSink {
 public:
  FrameSink(const std::vector<MutableBytes>& destinations, v1::PayloadDigest digest) : digest_(digest) {
    std::uint64_t begin = 0;
    for (const MutableBytes& memory : destinations) {
      if (memory.empty()) continue;
      tensors_.push_back({begin, memory});
      begin += memory.size();
    }
  }

  absl::Status Take(const wire::FrameData& frame) {
    const auto tensor = std::find_if(tensors_.begin(), tensors_.end(), [&frame](const Destination& candidate) {
      return frame.offset >= candidate.begin && frame.offset - candidate.begin < candidate.memory.size();
    });
    if (tensor == tensors_.end()) return absl::DataLossError("the server sent more bytes than it declared");
    if (frame.offset - tensor->begin != tensor->filled) {
      return absl::DataLossError("the server's frames are out of order");
    }
    if (frame.size > tensor->memory.size() - tensor->filled) {
      return absl::DataLossError("the server sent a frame that goes beyond its tensor");
    }
    for (const absl::string_view piece : frame.pieces) {
      std::byte* const to = tensor->memory.data() + tensor->filled;
      std::memcpy(to, piece.data(), piece.size());
      digest_.Update(to, piece.size());
      tensor->filled += piece.size();
    }
    return absl::OkStatus();
  }

  // `sha256` and `xxh3` may be empty: not said, or not what this sink computes.
  absl::Status Finish(const std::string& sha256, const std::string& xxh3) {
    for (const Destination& tensor : tensors_) {
      if (tensor.filled == tensor.memory.size()) continue;
      return absl::DataLossError(
          absl::StrCat("the server sent ", tensor.filled, " of a tensor's ", tensor.memory.size(), " bytes"));
    }
    const v1::PayloadTrailer mine = digest_.Finish();
    const auto differs = [](const std::string& own, const std::string& servers) {
      return !own.empty() && !servers.empty() && own != servers;
    };
    if (differs(mine.sha256(), sha256) || differs(mine.xxh3(), xxh3)) {
      return absl::DataLossError("the digest of what arrived differs from the server's");
    }
    return absl::OkStatus();
  }

 private:
  struct Destination {
    std::uint64_t begin = 0;  // In the payload.
    MutableBytes memory;
    std::size_t filled = 0;
  };

  std::vector<Destination> tensors_;
  wire::PayloadDigest digest_;
};

// The server's status where the call failed; `mine` where the client gave up on an answer.
absl::Status EndOf(const absl::Status& mine, const grpc::Status& servers, AttemptContext& context) {
  return mine.ok() ? FromGrpc(servers, *context) : mine;
}

}  // namespace

absl::StatusOr<v1::StreamGradientDone> RunStreamGradient(grpc::Channel* channel, AttemptContext& context,
                                                         const v1::GradientRequest& header,
                                                         const std::vector<ConstBytes>& payload,
                                                         const std::shared_ptr<const void>& lent,
                                                         const Stub::Allocate& allocate) {
  using Request = v1::StreamGradientRequest;
  using Response = v1::StreamGradientResponse;
  const grpc::internal::RpcMethod method(kStreamGradient, grpc::internal::RpcMethod::BIDI_STREAMING);
  const std::unique_ptr<grpc::ClientReaderWriter<Sent<Request>, Received<Response>>> stream(
      grpc::internal::ClientReaderWriterFactory<Sent<Request>, Received<Response>>::Create(channel, method,
                                                                                           context.get()));
  // Sends while this thread reads: a server that answers, or refuses, before it has everything must not find nobody
  // reading.
  std::thread sender([&] {
    Request first;
    *first.mutable_header() = header;
    if (stream->Write(Sent<Request>{&first, {}})) WritePayload<Request>(*stream, payload, header.digest(), lent);
  });
  absl::Status mine;
  std::optional<FrameSink> sink;
  std::optional<v1::StreamGradientDone> done;
  Received<Response> response;
  while (mine.ok() && stream->Read(&response)) {
    if (!response.status.ok()) {
      mine = absl::DataLossError("the server's answer can't be read");
    } else if (response.fields.has_header()) {
      auto destinations =
          sink ? absl::DataLossError("the server sent two headers") : allocate(response.fields.header());
      mine = destinations.status();
      if (mine.ok()) sink.emplace(*std::move(destinations), header.digest());
    } else if (!sink) {
      mine = absl::DataLossError("the server's answer has no header");
    }
    if (mine.ok() && response.data.size > 0) mine = sink->Take(response.data);
    if (mine.ok() && response.fields.has_done()) done = response.fields.done();
  }
  if (!mine.ok()) context.get()->TryCancel();
  sender.join();
  const grpc::Status status = stream->Finish();
  if (auto end = EndOf(mine, status, context); !end.ok()) return end;
  if (!done) return absl::DataLossError("the server's answer has no end");
  if (auto complete = sink->Finish(done->sha256(), done->xxh3()); !complete.ok()) return complete;
  return *std::move(done);
}

absl::StatusOr<v1::TensorInfo> RunPut(grpc::Channel* channel, AttemptContext& context, const v1::PutHeader& header,
                                      ConstBytes payload, const std::shared_ptr<const void>& lent) {
  using Request = v1::PutRequest;
  v1::TensorInfo info;
  const grpc::internal::RpcMethod method(kPut, grpc::internal::RpcMethod::CLIENT_STREAMING);
  const std::unique_ptr<grpc::ClientWriter<Sent<Request>>> stream(
      grpc::internal::ClientWriterFactory<Sent<Request>>::Create(channel, method, context.get(), &info));
  Request first;
  *first.mutable_header() = header;
  if (stream->Write(Sent<Request>{&first, {}})) WritePayload<Request>(*stream, {payload}, header.digest(), lent);
  const grpc::Status status = stream->Finish();
  if (!status.ok()) return FromGrpc(status, *context);
  return info;
}

absl::Status RunGet(grpc::Channel* channel, AttemptContext& context, const v1::GetTensorRequest& request,
                    const Stub::AllocateTensor& allocate) {
  using Response = v1::GetTensorResponse;
  const grpc::internal::RpcMethod method(kGet, grpc::internal::RpcMethod::SERVER_STREAMING);
  const std::unique_ptr<grpc::ClientReader<Received<Response>>> stream(
      grpc::internal::ClientReaderFactory<Received<Response>>::Create(channel, method, context.get(), request));
  absl::Status mine;
  std::optional<FrameSink> sink;
  std::string sha256;
  std::string xxh3;
  Received<Response> response;
  while (mine.ok() && stream->Read(&response)) {
    if (!response.status.ok()) {
      mine = absl::DataLossError("the server's answer can't be read");
    } else if (response.fields.has_header()) {
      const v1::TensorInfo& header = response.fields.header();
      auto destination = sink ? absl::DataLossError("the server sent two headers") : allocate(header);
      mine = destination.status();
      if (mine.ok()) sink.emplace(std::vector<MutableBytes>{*destination}, request.digest());
      sha256 = header.sha256();
      xxh3 = header.xxh3();
    } else if (!sink) {
      mine = absl::DataLossError("the server's answer has no header");
    }
    if (mine.ok() && response.data.size > 0) mine = sink->Take(response.data);
    if (!response.fields.trailer().sha256().empty()) sha256 = response.fields.trailer().sha256();
    if (!response.fields.trailer().xxh3().empty()) xxh3 = response.fields.trailer().xxh3();
  }
  if (!mine.ok()) context.get()->TryCancel();
  const grpc::Status status = stream->Finish();
  if (auto end = EndOf(mine, status, context); !end.ok()) return end;
  if (!sink) return absl::DataLossError("the server's answer has no header");
  return sink->Finish(sha256, xxh3);
}

}  // namespace keval
