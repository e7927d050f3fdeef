// One line in the log for each call, whatever becomes of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <memory>
#include <sstream>
#include <string>
#include <thread>

#include "keval/v1/server_info.grpc.pb.h"
#include "tests/unit/server/kevald_fixture.h"

namespace keval::server {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class CallLogTest : public KevaldTest {
 protected:
  CallLogTest() {
    const auto logger =
        std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(written_));
    logger->set_pattern("%l %v");
    spdlog::set_default_logger(logger);
  }
  ~CallLogTest() override {
    kevald_.reset();
    spdlog::set_default_logger(before_);
  }

  // The line that begins with `level` and this call's name, once the call's thread has written it; "" if it never does.
  // The server is gone after that: nothing writes to the stream while it is read.
  std::string LineOf(const std::string& beginning) {
    kevald_.reset();
    std::istringstream lines(written_.str());
    for (std::string line; std::getline(lines, line);) {
      if (line.rfind(beginning, 0) == 0) return line;
    }
    return "";
  }

 private:
  std::ostringstream written_;
  const std::shared_ptr<spdlog::logger> before_ = spdlog::default_logger();
};

TEST_F(CallLogTest, AnAnsweredCallHasNameCodeDurationPrincipalAndPeer) {
  Start();
  ASSERT_TRUE(Gradient(Unary()).ok());
  EXPECT_THAT(LineOf("info call=Gradient "),
              ContainsRegex("^info call=Gradient code=OK ms=[0-9]+\\.[0-9]+ principal=nobody "
                            "peer=ipv4:127\\.0\\.0\\.1:[0-9]+$"));
}

TEST_F(CallLogTest, ARefusalHasItsMessageToo) {
  Start();
  v1::GradientRequest request = Unary();
  request.mutable_options()->set_variant("no_such\x1b[31m\ninfo call=Forged");
  EXPECT_FALSE(Gradient(request).ok());
  const std::string line = LineOf("info call=Gradient ");
  EXPECT_THAT(line, HasSubstr("code=INVALID_ARGUMENT "));
  EXPECT_THAT(line, HasSubstr("message=variant: no_such"));
  EXPECT_THAT(line, Not(HasSubstr("\x1b")));
  EXPECT_EQ(LineOf("info call=Forged"), "");
}

TEST_F(CallLogTest, ACallerThatIsNotLetInHasNoName) {
  Start();
  v1::TensorInfo info;
  EXPECT_EQ(Stat("tensors/x", "mallory", &info).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_THAT(LineOf("info call=Stat "), HasSubstr("code=UNAUTHENTICATED ms="));
  EXPECT_THAT(LineOf("info call=Stat "), HasSubstr(" principal=- peer=ipv4:"));
}

TEST_F(CallLogTest, APrincipalIsOneWord) {
  Start();
  v1::TensorInfo info;
  EXPECT_EQ(Stat("tensors/x", "ann code=OK", &info).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(LineOf("info call=Stat "), HasSubstr(" principal=ann_code=OK peer="));
}

TEST_F(CallLogTest, AFaultOfTheServersIsAnErrorAndItsTextStaysInTheLog) {
  Start();
  control_->compute = [](const linear_logp::ContinueCheck&) { return absl::InternalError("engine.cc:12 broke"); };
  const grpc::Status status = Gradient(Unary());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_THAT(status.error_message(), Not(HasSubstr("engine.cc")));
  EXPECT_THAT(LineOf("error call=Gradient "), HasSubstr("message=engine.cc:12 broke"));
}

}  // namespace
}  // namespace keval::server
