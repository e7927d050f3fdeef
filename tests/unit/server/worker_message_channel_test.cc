#include "server/worker/message_channel.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>

#include "absl/status/status.h"
#include "server/worker/worker.pb.h"

namespace keval::worker {
namespace {

Request BlockRequest(int timed) {
  Request request;
  request.mutable_run_block()->set_timed_repetitions(timed);
  return request;
}

TEST(MessageDecoderTest, FindsMessagesHoweverTheyAreCut) {
  const std::string bytes = *Encode(BlockRequest(5)) + *Encode(BlockRequest(6));
  for (std::size_t step = 1; step <= bytes.size(); ++step) {
    MessageDecoder decoder;
    std::vector<int> seen;
    for (std::size_t at = 0; at < bytes.size(); at += step) {
      decoder.Append(bytes.data() + at, std::min(step, bytes.size() - at));
      Request request;
      while (*decoder.Next(&request)) {
        seen.push_back(request.run_block().timed_repetitions());
      }
    }
    EXPECT_EQ(seen, (std::vector<int>{5, 6})) << step;
  }
}

TEST(MessageDecoderTest, RefusesAnAbsurdLengthAndGarbage) {
  MessageDecoder absurd;
  absurd.Append("\xff\xff\xff\xff", 4);
  Request request;
  EXPECT_EQ(absurd.Next(&request).status().code(), absl::StatusCode::kDataLoss);
  MessageDecoder garbage;
  garbage.Append("\x02\0\0\0\xff\xff", 6);
  EXPECT_EQ(garbage.Next(&request).status().code(), absl::StatusCode::kDataLoss);
}

TEST(BlockingChannelTest, TellsTheEndFromATornMessage) {
  for (const bool torn : {false, true}) {
    std::array<int, 2> ends{};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
    if (torn) {
      ASSERT_EQ(write(ends[0], "\x05\0\0", 3), 3);
    }
    close(ends[0]);
    Request request;
    EXPECT_EQ(BlockingChannel(ends[1]).Read(&request).code(),
              torn ? absl::StatusCode::kUnavailable : absl::StatusCode::kOutOfRange);
    EXPECT_EQ(BlockingChannel(ends[1]).Write(request).code(), absl::StatusCode::kUnavailable);
    close(ends[1]);
  }
}

}  // namespace
}  // namespace keval::worker
