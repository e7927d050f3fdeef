// A connection over a mock of its stub.
#ifndef KEVAL_TESTS_UNIT_CLIENT_CONNECTION_FIXTURE_H_
#define KEVAL_TESTS_UNIT_CLIENT_CONNECTION_FIXTURE_H_

#include <cstdint>
#include <memory>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "client/connection_impl.h"
#include "tests/unit/client/mock_stub.h"

namespace keval {

class ConnectionTest : public ::testing::Test {
 protected:
  ConnectionTest() {
    options_.initial_backoff = absl::Milliseconds(1);
    options_.max_backoff = absl::Milliseconds(4);
    auto stub = std::make_unique<::testing::StrictMock<MockStub>>();
    stub_ = stub.get();
    connection_ = std::make_unique<ConnectionImpl>(options_, std::move(stub));
  }

  // Once, however many gradients follow.
  void ExpectInfo(std::int64_t max_unary_bytes) {
    v1::ServerInfo info;
    info.mutable_limits()->set_max_unary_bytes(max_unary_bytes);
    EXPECT_CALL(*stub_, GetServerInfo(::testing::_)).WillOnce(::testing::Return(info));
  }

  static absl::Status Unavailable() { return absl::UnavailableError("gone"); }

  ConnectionOptions options_;
  ::testing::StrictMock<MockStub>* stub_ = nullptr;
  std::unique_ptr<ConnectionImpl> connection_;
};

}  // namespace keval

#endif  // KEVAL_TESTS_UNIT_CLIENT_CONNECTION_FIXTURE_H_
