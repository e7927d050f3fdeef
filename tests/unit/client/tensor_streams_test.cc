// Tensors on their way to a server: in parts, and until the last reference to the caller's memory is gone.
#include "client/tensor_streams.h"

#include <arpa/inet.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/mutex.h"
#include "client/grpc_stub.h"
#include "wire/memory_loan.h"
#include "wire/payload_digest.h"

namespace keval {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

class InfoService : public v1::ServerInfoService::Service {
 public:
  grpc::Status GetServerInfo(grpc::ServerContext*, const v1::GetServerInfoRequest*, v1::ServerInfo* info) override {
    const MutexLock lock(&mutex_);
    *info = answer_;
    return grpc::Status::OK;
  }
  void SetBulkPort(int port) {
    const MutexLock lock(&mutex_);
    answer_.set_bulk_port(port);
    answer_.clear_payload_digests();
    answer_.add_payload_digests(v1::PAYLOAD_DIGEST_XXH3);
  }

 private:
  Mutex mutex_;
  v1::ServerInfo answer_ ABSL_GUARDED_BY(mutex_);
};

// Written from the proto alone, with generated messages: takes parts, and checks each one's digest.
class PartsService : public v1::TensorService::Service {
 public:
  grpc::Status Put(grpc::ServerContext* context, grpc::ServerReader<v1::PutRequest>* reader,
                   v1::TensorInfo* info) override {
    v1::PutRequest request;
    reader->Read(&request);
    const v1::PutHeader header = request.header();
    if (header.part().begin() > 0 && refuse_second) return {grpc::StatusCode::RESOURCE_EXHAUSTED, "no room"};
    if (stall) {
      while (!context->IsCancelled()) absl::SleepFor(absl::Milliseconds(1));
      return grpc::Status::CANCELLED;
    }
    wire::PayloadDigest digest(header.digest());
    std::string payload;
    v1::PayloadTrailer trailer;
    while (reader->Read(&request)) {
      if (request.offset() != (request.data().empty() ? 0 : payload.size())) {
        return {grpc::StatusCode::INVALID_ARGUMENT, "offset"};
      }
      digest.Update(request.data().data(), request.data().size());
      payload += request.data();
      trailer = request.trailer();
    }
    if (context->IsCancelled()) return grpc::Status::CANCELLED;
    if (trailer.SerializeAsString() != digest.Finish().SerializeAsString()) {
      return {grpc::StatusCode::INVALID_ARGUMENT, "digest"};
    }
    const MutexLock lock(&mutex);
    parts[header.part().begin()] = payload;
    peers[context->peer()] += 1;
    ids[header.part().upload_id()] += 1;
    if (parts.size() == 2 || !header.has_part()) info->set_handle("tensors/done");
    return grpc::Status::OK;
  }

  bool refuse_second = false;
  std::atomic<bool> stall = false;
  Mutex mutex;
  std::map<std::int64_t, std::string> parts ABSL_GUARDED_BY(mutex);
  std::map<std::string, int> peers ABSL_GUARDED_BY(mutex);
  std::map<std::string, int> ids ABSL_GUARDED_BY(mutex);
};

class TensorStreamsTest : public ::testing::Test {
 protected:
  TensorStreamsTest() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&info_);
    builder.RegisterService(&tensors_);
    server_ = builder.BuildAndStart();
    info_.SetBulkPort(port_);
    stub_ = std::make_unique<GrpcStub>(LocalAddress(), *Credentials::Make(LocalAddress(), {}), absl::Seconds(5),
                                       [](const std::string&) {});
  }
  ~TensorStreamsTest() override { server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1)); }

  static std::vector<std::byte> Tensor(std::size_t bytes) {
    std::vector<std::byte> tensor(bytes);
    for (std::size_t i = 0; i < bytes; i += 997) tensor[i] = static_cast<std::byte>(i);
    return tensor;
  }

  Address LocalAddress() const { return *ParseAddress(absl::StrCat("127.0.0.1:", port_)); }

  int port_ = 0;
  InfoService info_;
  PartsService tensors_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<GrpcStub> stub_;
};

TEST_F(TensorStreamsTest, ALargeTensorGoesInTwoPartsOverTwoConnections) {
  const std::vector<std::byte> tensor = Tensor(9 * kMiB + 5);
  const auto info = stub_->Put({}, v1::PutHeader(), tensor);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->handle(), "tensors/done");
  const MutexLock lock(&tensors_.mutex);
  std::string whole;
  for (const auto& [begin, part] : tensors_.parts) {
    EXPECT_EQ(begin, static_cast<std::int64_t>(whole.size()));
    whole += part;
  }
  ASSERT_EQ(whole.size(), tensor.size());
  EXPECT_EQ(std::memcmp(whole.data(), tensor.data(), whole.size()), 0);
  EXPECT_EQ(tensors_.peers.size(), 2U);
  ASSERT_EQ(tensors_.ids.size(), 1U);
  EXPECT_EQ(tensors_.ids.begin()->first.size(), 16U);
}

TEST_F(TensorStreamsTest, ASmallOneAndOneWithSha256GoWhole) {
  v1::PutHeader header;
  EXPECT_TRUE(stub_->Put({}, header, Tensor(1000)).ok());
  header.set_digest(v1::PAYLOAD_DIGEST_SHA256);
  EXPECT_TRUE(stub_->Put({}, header, Tensor(9 * kMiB)).ok());
  const MutexLock lock(&tensors_.mutex);
  EXPECT_EQ(tensors_.parts.size(), 1U);
}

TEST_F(TensorStreamsTest, ThePartThatFailedGivesTheReason) {
  tensors_.refuse_second = true;
  const auto info = stub_->Put({}, v1::PutHeader(), Tensor(64 * kMiB));
  EXPECT_EQ(info.status().code(), absl::StatusCode::kResourceExhausted) << info.status();
}

TEST_F(TensorStreamsTest, NoReferenceIsLeftAfterADeadline) {
  tensors_.stall = true;
  const auto channel = MakeChannel(*ParseAddress(absl::StrCat("127.0.0.1:", port_)), Traffic::kBulk);
  const std::vector<std::byte> tensor = Tensor(64 * kMiB);
  for (int i = 0; i < 10; ++i) {
    wire::MemoryLoan loan;
    {
      AttemptContext context({absl::Now() + absl::Milliseconds(20), nullptr});
      const auto info = RunPut(channel.get(), context, v1::PutHeader(), tensor, loan.owner());
      EXPECT_EQ(info.status().code(), absl::StatusCode::kDeadlineExceeded);
    }
    EXPECT_TRUE(loan.AwaitReturn(std::chrono::seconds(10)));
  }
}

// The memory is scribbled on as soon as the call has ended: AddressSanitizer and the digests would notice a reader.
TEST_F(TensorStreamsTest, NoReferenceIsLeftAfterACancelAtAnyPoint) {
  std::mt19937 random(7);
  int cancelled = 0;
  for (int i = 0; i < 30; ++i) {
    auto tensor = std::make_unique<std::vector<std::byte>>(Tensor(16 * kMiB));
    CancelSource cancel;
    std::thread canceller([&] {
      absl::SleepFor(absl::Microseconds(random() % 20000));
      cancel.Cancel();
    });
    const auto info = stub_->Put({absl::InfiniteFuture(), &cancel}, v1::PutHeader(), *tensor);
    tensor.reset();
    canceller.join();
    if (!info.ok()) {
      ++cancelled;
      EXPECT_EQ(info.status().code(), absl::StatusCode::kCancelled) << info.status();
    }
    const MutexLock lock(&tensors_.mutex);
    tensors_.parts.clear();
  }
  EXPECT_GT(cancelled, 0);
}

// Speaks just enough HTTP/2 to be taken for a server, opens every window and never reads: what the client has sent
// stays in its connection.
class DeafServer {
 public:
  DeafServer() : listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listener_, generic, size), 0);
    EXPECT_EQ(listen(listener_, 8), 0);
    EXPECT_EQ(getsockname(listener_, generic, &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] {
      for (int peer = accept(listener_, nullptr, nullptr); peer >= 0; peer = accept(listener_, nullptr, nullptr)) {
        // SETTINGS with INITIAL_WINDOW_SIZE 2^31 - 1, and a WINDOW_UPDATE that opens the connection's.
        constexpr std::array<unsigned char, 28> kGreeting = {0,    0, 6, 4, 0, 0, 0, 0, 0, 0, 4,    0x7f, 0xff, 0xff,
                                                             0xff, 0, 0, 4, 8, 0, 0, 0, 0, 0, 0x7f, 0,    0,    0};
        EXPECT_EQ(send(peer, kGreeting.data(), kGreeting.size(), MSG_NOSIGNAL), std::ssize(kGreeting));
        peers_.push_back(peer);
      }
    });
  }
  ~DeafServer() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
    for (const int peer : peers_) close(peer);
  }
  int port() const { return port_; }

 private:
  const int listener_;
  int port_ = 0;
  std::vector<int> peers_;
  std::thread thread_;
};

TEST_F(TensorStreamsTest, APeerThatStoppedReadingDoesNotKeepTheMemory) {
  const DeafServer deaf;
  info_.SetBulkPort(deaf.port());
  const std::vector<std::byte> tensor = Tensor(64 * kMiB);
  for (int i = 0; i < 2; ++i) {  // The second time over new connections.
    const absl::Time start = absl::Now();
    const auto info = stub_->Put({start + absl::Milliseconds(300), nullptr}, v1::PutHeader(), tensor);
    EXPECT_EQ(info.status().code(), absl::StatusCode::kDeadlineExceeded) << info.status();
    EXPECT_LT(absl::Now() - start, absl::Seconds(15));  // Keepalive alone would take 30 s.
  }
}

}  // namespace
}  // namespace keval
