#include "client/channel.h"

#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

#include "base/field_error.h"

namespace keval {
namespace {

TEST(ChannelTest, ReadsAddresses) {
  EXPECT_EQ(ParseAddress("127.0.0.1:7400")->Target(), "dns:///127.0.0.1:7400");
  EXPECT_EQ(ParseAddress("[::1]:1")->Target(), "dns:///[::1]:1");
  EXPECT_EQ(ParseAddress("gpu-1.example:65535")->port, 65535);
  EXPECT_EQ(ParseAddress("unix:/run/keval.sock")->Target(), "unix:/run/keval.sock");
  for (const char* bad :
       {"", ":1", "host", "host:", "host:0", "host:65536", "host:-1", "host:1x", "::1:7400", "[::1]", "[::1:1", "[x]:1",
        "unix:relative", "unix:", "dns:///host:1", "http://host:1", "a b:1", "h:1:2"}) {
    const auto address = ParseAddress(bad);
    ASSERT_FALSE(address.ok()) << bad;
    EXPECT_EQ(GetFieldViolation(address.status())->field, "server");
  }
  EXPECT_FALSE(ParseAddress("unix:/" + std::string(107, 'a')).ok());
}

// Case 13.
TEST(ChannelTest, KnowsLocalAddresses) {
  for (const char* local : {"127.0.0.1:1", "127.9.9.9:1", "127.1:1", "localhost:1", "LocalHost:1", "[::1]:1",
                            "[::ffff:127.0.0.1]:1", "0.0.0.0:1", "[::]:1", "unix:/a"}) {
    EXPECT_TRUE(ParseAddress(local)->IsLocal()) << local;
  }
  for (const char* remote : {"128.0.0.1:1", "10.0.0.1:1", "localhost.example:1", "[::2]:1", "[::ffff:10.0.0.1]:1"}) {
    EXPECT_FALSE(ParseAddress(remote)->IsLocal()) << remote;
  }
}

TEST(ChannelTest, NamesTheProxyVariableThatWouldBeUsed) {
  for (const char* name : {"grpc_proxy", "https_proxy", "http_proxy", "no_proxy", "no_grpc_proxy"}) unsetenv(name);
  const Address remote = *ParseAddress("gpu.example:7400");
  EXPECT_EQ(ProxyVariable(remote), "");
  setenv("http_proxy", "http://127.0.0.1:9", 1);
  EXPECT_EQ(ProxyVariable(remote), "http_proxy");
  setenv("grpc_proxy", "http://127.0.0.1:9", 1);
  EXPECT_EQ(ProxyVariable(remote), "grpc_proxy");
  EXPECT_EQ(ProxyVariable(*ParseAddress("127.0.0.1:7400")), "");
  EXPECT_EQ(ProxyVariable(*ParseAddress("unix:/a")), "");
  setenv("no_proxy", "other, .example", 1);
  EXPECT_EQ(ProxyVariable(remote), "");
  for (const char* name : {"grpc_proxy", "http_proxy", "no_proxy"}) unsetenv(name);
}

}  // namespace
}  // namespace keval
