#include "client/connection_impl.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "base/sha256.h"
#include "base/text.h"
#include "client/channel.h"
#include "client/gradient_request.h"
#include "client/grpc_stub.h"

namespace keval {
namespace {

v1::ForwardRequest ToForward(v1::GradientRequest request) {
  v1::ForwardRequest forward;
  *forward.mutable_options() = std::move(*request.mutable_options());
  *forward.mutable_inputs() = std::move(*request.mutable_inputs());
  return forward;
}

v1::GradientResponse FromForward(v1::ForwardResponse response) {
  v1::GradientResponse gradient;
  *gradient.mutable_logp() = std::move(*response.mutable_logp());
  *gradient.mutable_dispatch() = std::move(*response.mutable_dispatch());
  *gradient.mutable_timing() = std::move(*response.mutable_timing());
  return gradient;
}

// Gathers the files of a report from its pieces. Not thread-safe.
class ReportCollector {
 public:
  void Take(const v1::GetReportResponse& piece) {
    if (!status_.ok()) return;
    if (!piece.file_name().empty()) {
      // The names go into a caller's folder: nothing but these.
      static constexpr absl::string_view kNames[] = {"report.json", "samples.csv", "diagnostics.csv", "excluded.csv"};
      if (std::find(std::begin(kNames), std::end(kNames), piece.file_name()) == std::end(kNames)) {
        status_ = absl::DataLossError(
            absl::StrCat("the server's report has a file of unknown name: ", PrintableText(piece.file_name(), 256)));
        return;
      }
      files_.push_back({piece.file_name(), ""});
      ended_ = false;
    }
    if (files_.empty() || ended_) {
      status_ = absl::DataLossError("the server's report has bytes of no file");
      return;
    }
    files_.back().contents += piece.data();
    if (piece.sha256().empty()) return;
    ended_ = true;
    if (Sha256Bytes(files_.back().contents) != piece.sha256()) {
      status_ = absl::DataLossError(absl::StrCat("the digest of ", files_.back().name, " differs from the server's"));
    }
  }

  absl::StatusOr<std::vector<ReportFile>> Finish() {
    if (!status_.ok()) return status_;
    if (files_.empty() || !ended_) return absl::DataLossError("the server's report is cut off");
    return std::move(files_);
  }

 private:
  absl::Status status_;
  std::vector<ReportFile> files_;
  bool ended_ = true;
};

}  // namespace

absl::Time ConnectionImpl::Deadline(const CallOptions& options, Kind kind) const {
  const absl::Duration own = kind == Kind::kControl ? options_.control_timeout : absl::InfiniteDuration();
  return absl::Now() + (options.timeout == absl::InfiniteDuration() ? own : options.timeout);
}

absl::StatusOr<v1::ServerInfo> ConnectionImpl::GetServerInfo(const CallOptions& options) {
  return Call(options, Kind::kControl, Repeatable::kYes,
              [&](const Attempt& attempt) { return stub_->GetServerInfo(attempt); });
}

absl::StatusOr<bool> ConnectionImpl::IsServing(const std::string& service, const CallOptions& options) {
  return Call(options, Kind::kControl, Repeatable::kYes,
              [&](const Attempt& attempt) { return stub_->IsServing(attempt, service); });
}

absl::StatusOr<std::int64_t> ConnectionImpl::MaxUnaryBytes(const CallOptions& options) {
  {
    const MutexLock lock(&mutex_);
    if (max_unary_bytes_) return *max_unary_bytes_;
  }
  const auto info = GetServerInfo(options);
  if (!info.ok()) return info.status();
  const MutexLock lock(&mutex_);
  max_unary_bytes_ = info->limits().max_unary_bytes();
  return *max_unary_bytes_;
}

absl::StatusOr<GradientResult> ConnectionImpl::Gradient(const GradientParams& params, const CallOptions& options) {
  const auto prepared = PrepareGradient(params);
  if (!prepared.ok()) return prepared.status();
  const auto max_unary_bytes = MaxUnaryBytes(options);
  if (!max_unary_bytes.ok()) return max_unary_bytes.status();
  // The size of an answer to handles isn't known here: only a stream takes any.
  if (!prepared->has_handles && std::max(prepared->payload_bytes, prepared->answer_bytes) <= *max_unary_bytes) {
    const v1::GradientRequest request = WithBytes(*prepared);
    const bool forward = !params.grad_logp.given();
    const auto response = Call(options, Kind::kLong, Repeatable::kYes,
                               [&](const Attempt& attempt) -> absl::StatusOr<v1::GradientResponse> {
                                 if (!forward) return stub_->Gradient(attempt, request);
                                 auto answer = stub_->Forward(attempt, ToForward(request));
                                 if (!answer.ok()) return answer.status();
                                 return FromForward(*std::move(answer));
                               });
    if (!response.ok()) return response.status();
    return FromResponse(*response);
  }
  return Call(options, Kind::kLong, Repeatable::kYes, [&](const Attempt& attempt) -> absl::StatusOr<GradientResult> {
    GradientResult result;
    auto done =
        stub_->StreamGradient(attempt, prepared->header, prepared->payload,
                              [&](const v1::GradientResponse& header) { return AllocateResult(header, &result); });
    if (!done.ok()) return done.status();
    result.dispatch = std::move(*done->mutable_dispatch());
    result.timing = std::move(*done->mutable_timing());
    result.session_batch = done->session_batch();
    return result;
  });
}

absl::StatusOr<v1::PlanResponse> ConnectionImpl::Plan(const v1::PlanRequest& request, const CallOptions& options) {
  return Call(options, Kind::kControl, Repeatable::kYes,
              [&](const Attempt& attempt) { return stub_->Plan(attempt, request); });
}

absl::Status ConnectionImpl::CheckContract(const v1::CheckContractRequest& request,
                                           const std::function<void(const v1::ContractRow&)>& row,
                                           const CallOptions& options) {
  // Rows that a first attempt has shown can't be taken back.
  return Call(options, Kind::kLong, Repeatable::kNo,
              [&](const Attempt& attempt) { return stub_->CheckContract(attempt, request, row); });
}

absl::StatusOr<v1::TensorInfo> ConnectionImpl::PutTensor(const TensorView& tensor, absl::Duration lease,
                                                         const CallOptions& options) {
  std::deque<Tensor> copies;
  const auto bytes = Contiguous("tensor", tensor, &copies);
  if (!bytes.ok()) return bytes.status();
  v1::PutHeader header;
  *header.mutable_spec() = ToProto(tensor);
  header.set_lease_ms(absl::ToInt64Milliseconds(lease));
  return Call(options, Kind::kLong, Repeatable::kNo,
              [&](const Attempt& attempt) { return stub_->Put(attempt, header, *bytes); });
}

absl::StatusOr<v1::TensorInfo> ConnectionImpl::PutTensorIfNew(const TensorView& tensor, absl::Duration lease,
                                                              const CallOptions& options) {
  std::deque<Tensor> copies;
  const auto bytes = Contiguous("tensor", tensor, &copies);
  if (!bytes.ok()) return bytes.status();
  v1::ReuseTensorRequest known;
  *known.mutable_spec() = ToProto(tensor);
  known.set_sha256(Sha256Bytes(absl::string_view(reinterpret_cast<const char*>(bytes->data()), bytes->size())));
  known.set_lease_ms(absl::ToInt64Milliseconds(lease));
  auto reused = Call(options, Kind::kControl, Repeatable::kNo,
                     [&](const Attempt& attempt) { return stub_->Reuse(attempt, known); });
  // An older server doesn't know the call.
  if (!absl::IsNotFound(reused.status()) && !absl::IsUnimplemented(reused.status())) return reused;
  v1::PutHeader header;
  *header.mutable_spec() = known.spec();
  header.set_lease_ms(known.lease_ms());
  header.set_digest(v1::PAYLOAD_DIGEST_SHA256);
  return Call(options, Kind::kLong, Repeatable::kNo,
              [&](const Attempt& attempt) { return stub_->Put(attempt, header, *bytes); });
}

absl::StatusOr<Tensor> ConnectionImpl::GetTensor(const std::string& handle, const CallOptions& options) {
  v1::GetTensorRequest request;
  request.set_handle(handle);
  return Call(options, Kind::kLong, Repeatable::kYes, [&](const Attempt& attempt) -> absl::StatusOr<Tensor> {
    Tensor tensor;
    const auto status = stub_->Get(attempt, request, [&](const v1::TensorInfo& header) -> absl::StatusOr<MutableBytes> {
      auto allocated = AllocateTensor("tensor", header.spec());
      if (!allocated.ok()) return allocated.status();
      tensor = *std::move(allocated);
      return tensor.mutable_bytes();
    });
    if (!status.ok()) return status;
    return tensor;
  });
}

absl::StatusOr<v1::TensorInfo> ConnectionImpl::GetTensorInto(const std::string& handle,
                                                             absl::Span<std::byte> destination,
                                                             const CallOptions& options) {
  v1::GetTensorRequest request;
  request.set_handle(handle);
  return Call(options, Kind::kLong, Repeatable::kYes, [&](const Attempt& attempt) -> absl::StatusOr<v1::TensorInfo> {
    v1::TensorInfo info;
    const auto status = stub_->Get(attempt, request, [&](const v1::TensorInfo& header) -> absl::StatusOr<MutableBytes> {
      if (header.size_bytes() != static_cast<std::int64_t>(destination.size())) {
        return InvalidField("destination", absl::StrCat(destination.size(), " bytes"),
                            absl::StrCat("of the tensor's ", header.size_bytes(), " bytes"));
      }
      info = header;
      return destination;
    });
    if (!status.ok()) return status;
    return info;
  });
}

absl::StatusOr<v1::TensorInfo> ConnectionImpl::StatTensor(const std::string& handle, const CallOptions& options) {
  v1::StatTensorRequest request;
  request.set_handle(handle);
  return Call(options, Kind::kControl, Repeatable::kYes,
              [&](const Attempt& attempt) { return stub_->Stat(attempt, request); });
}

absl::StatusOr<std::vector<v1::TensorInfo>> ConnectionImpl::ListTensors(const CallOptions& options) {
  std::vector<v1::TensorInfo> tensors;
  v1::ListTensorsRequest request;
  request.set_page_size(kPageSize);
  do {
    const auto page = Call(options, Kind::kControl, Repeatable::kYes,
                           [&](const Attempt& attempt) { return stub_->ListTensors(attempt, request); });
    if (!page.ok()) return page.status();
    tensors.insert(tensors.end(), page->tensors().begin(), page->tensors().end());
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty());
  return tensors;
}

absl::StatusOr<v1::TensorInfo> ConnectionImpl::TouchTensor(const std::string& handle, absl::Duration lease,
                                                           const CallOptions& options) {
  v1::TouchTensorRequest request;
  request.set_handle(handle);
  request.set_lease_ms(absl::ToInt64Milliseconds(lease));
  return Call(options, Kind::kControl, Repeatable::kYes,
              [&](const Attempt& attempt) { return stub_->Touch(attempt, request); });
}

absl::Status ConnectionImpl::DeleteTensor(const std::string& handle, const CallOptions& options) {
  v1::DeleteTensorRequest request;
  request.set_handle(handle);
  // A second attempt would find nothing and report NOT_FOUND for what worked.
  return Call(options, Kind::kControl, Repeatable::kNo,
              [&](const Attempt& attempt) { return stub_->Delete(attempt, request); })
      .status();
}

absl::StatusOr<v1::BenchmarkJob> ConnectionImpl::CreateJob(v1::CreateJobRequest request, const CallOptions& options) {
  if (request.request_id().empty()) request.set_request_id(RandomHex128());
  return Call(options, Kind::kControl, Repeatable::kYes,
              [&](const Attempt& attempt) { return stub_->Create(attempt, request); });
}

absl::StatusOr<v1::BenchmarkJob> ConnectionImpl::GetJob(const std::string& name, const CallOptions& options) {
  v1::GetJobRequest request;
  request.set_name(name);
  return Call(options, Kind::kControl, Repeatable::kYes,
              [&](const Attempt& attempt) { return stub_->GetJob(attempt, request); });
}

absl::StatusOr<std::vector<v1::BenchmarkJob>> ConnectionImpl::ListJobs(const ListJobsParams& params,
                                                                       const CallOptions& options) {
  std::vector<v1::BenchmarkJob> jobs;
  const std::int64_t limit = params.limit;
  v1::ListJobsRequest request;
  request.set_spec_digest(params.spec_digest);
  do {
    const std::int64_t left = limit == 0 ? kPageSize : limit - static_cast<std::int64_t>(jobs.size());
    request.set_page_size(static_cast<int>(std::min<std::int64_t>(left, kPageSize)));
    const auto page = Call(options, Kind::kControl, Repeatable::kYes,
                           [&](const Attempt& attempt) { return stub_->ListJobs(attempt, request); });
    if (!page.ok()) return page.status();
    jobs.insert(jobs.end(), page->jobs().begin(), page->jobs().end());
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty() && (limit == 0 || static_cast<std::int64_t>(jobs.size()) < limit));
  return jobs;
}

absl::Status ConnectionImpl::WatchJob(const WatchParams& params, const std::function<void(const v1::JobEvent&)>& event,
                                      const CallOptions& options) {
  const absl::Time deadline = Deadline(options, Kind::kLong);
  v1::WatchJobRequest request;
  request.set_name(params.name);
  request.set_after_sequence(params.after_sequence);
  request.set_progress(params.progress);
  absl::Time last_answer = absl::Now();
  Backoff backoff(options_.initial_backoff, absl::Seconds(1));
  while (true) {
    absl::Status status = stub_->Watch({deadline, options.cancel.get()}, request, [&](const v1::JobEvent& received) {
      last_answer = absl::Now();
      if (received.has_progress()) {
        event(received);
        return;
      }
      // A replay may begin earlier than asked for; each event is told once.
      if (received.sequence() <= request.after_sequence()) return;
      request.set_after_sequence(received.sequence());
      event(received);
    });
    if (!absl::IsUnavailable(status)) return status;
    const absl::Duration delay = backoff.Next();
    if (absl::Now() + delay >= std::min(last_answer + params.reconnect_for, deadline)) return status;
    if (options.cancel == nullptr) {
      absl::SleepFor(delay);
    } else if (!options.cancel->SleepFor(delay)) {
      return absl::CancelledError("cancelled while the server was out of reach");
    }
  }
}

absl::StatusOr<v1::BenchmarkJob> ConnectionImpl::CancelJob(const std::string& name, const CallOptions& options) {
  v1::CancelJobRequest request;
  request.set_name(name);
  return Call(options, Kind::kControl, Repeatable::kYes,
              [&](const Attempt& attempt) { return stub_->Cancel(attempt, request); });
}

absl::StatusOr<std::vector<ReportFile>> ConnectionImpl::GetReport(const std::string& name,
                                                                  const std::vector<std::string>& file_names,
                                                                  const CallOptions& options) {
  v1::GetReportRequest request;
  request.set_name(name);
  request.mutable_file_names()->Assign(file_names.begin(), file_names.end());
  return Call(
      options, Kind::kLong, Repeatable::kYes, [&](const Attempt& attempt) -> absl::StatusOr<std::vector<ReportFile>> {
        ReportCollector collector;
        const auto status =
            stub_->GetReport(attempt, request, [&](const v1::GetReportResponse& piece) { collector.Take(piece); });
        if (!status.ok()) return status;
        return collector.Finish();
      });
}

absl::StatusOr<std::shared_ptr<Connection>> MakeConnection(ConnectionOptions options) {
  auto address = ParseAddress(options.server);
  if (!address.ok()) return address.status();
  auto credentials = Credentials::Make(*address, options);
  if (!credentials.ok()) return credentials.status();
  auto stub = std::make_unique<GrpcStub>(*std::move(address), *std::move(credentials), options.bulk_probe_timeout,
                                         options.notice, options.bulk_connections);
  return std::make_shared<ConnectionImpl>(std::move(options), std::move(stub));
}

}  // namespace keval
