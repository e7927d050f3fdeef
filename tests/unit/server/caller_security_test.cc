// Tokens, users of this machine, and who a call belongs to; no server in it.
#include "server/caller_security.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/peer_tokens.h"
#include "server/token_table.h"
#include "tests/support/temp_dir.h"

namespace keval::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kAnnsToken = "ann-0123456789abcdef";
constexpr const char* kBobsToken = "bob-0123456789abcdef";

TEST(TokenTableTest, FindsThePrincipalOfEachToken) {
  const auto table = TokenTable::Parse(
      absl::StrCat("# comment\n\nann:", kAnnsToken, "\r\nteam/bob@x:", kBobsToken, "\nann:", kBobsToken, "2"));
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->PrincipalOf(kAnnsToken), "ann");
  EXPECT_EQ(table->PrincipalOf(kBobsToken), "team/bob@x");
  EXPECT_EQ(table->PrincipalOf(absl::StrCat(kBobsToken, "2")), "ann");
  for (const std::string& wrong : {std::string(), std::string(kAnnsToken).substr(1), absl::StrCat(kAnnsToken, "x"),
                                   std::string("ann-0123456789abcdeF"), absl::StrCat("ann:", kAnnsToken)}) {
    EXPECT_EQ(table->PrincipalOf(wrong), std::nullopt) << wrong;
  }
}

TEST(TokenTableTest, RefusesALineByItsNumberWithoutShowingIt) {
  for (const std::string& line :
       {std::string("secret-secret-secret"), std::string("ann:secret"), std::string(":secret-secret-secret"),
        std::string("uid:7:secret-secret-secret "), std::string("a b:secret-secret-secret"),
        std::string("ann:secret-secret secret"), absl::StrCat("ann:", std::string(513, 's')),
        absl::StrCat(std::string(129, 'a'), ":secret-secret-secret"), absl::StrCat("bob:", kAnnsToken)}) {
    const auto table = TokenTable::Parse(absl::StrCat("ann:", kAnnsToken, "\n", line));
    ASSERT_FALSE(table.ok()) << line;
    EXPECT_THAT(std::string(table.status().message()), HasSubstr("line 2"));
    EXPECT_THAT(std::string(table.status().message()), Not(HasSubstr("secret")));
    EXPECT_THAT(std::string(table.status().message()), Not(HasSubstr(kAnnsToken)));
  }
}

TEST(PeerTokensTest, StandForAUidUntilTheyExpire) {
  absl::Time now = absl::FromUnixSeconds(1000000);
  const PeerTokens tokens([&] { return now; });
  const std::string token = tokens.Issue(1234);
  EXPECT_EQ(tokens.PrincipalOf(token), "uid:1234");
  now += PeerTokens::kLifetime - absl::Seconds(1);
  EXPECT_EQ(tokens.PrincipalOf(token), "uid:1234");
  now += absl::Seconds(1);
  EXPECT_EQ(tokens.PrincipalOf(token), std::nullopt);
}

TEST(PeerTokensTest, NoOtherTextIsOne) {
  const PeerTokens tokens;
  const std::string token = tokens.Issue(1234);
  EXPECT_EQ(PeerTokens().PrincipalOf(token), std::nullopt) << "of another process";
  for (std::size_t i = 0; i < token.size(); ++i) {
    std::string changed = token;
    changed[i] = changed[i] == '0' ? '1' : '0';
    EXPECT_EQ(tokens.PrincipalOf(changed), std::nullopt) << changed;
    EXPECT_EQ(tokens.PrincipalOf(token.substr(0, i)), std::nullopt);
  }
  EXPECT_EQ(tokens.PrincipalOf(absl::StrCat(token, "0")), std::nullopt);
}

class CallerSecurityTest : public ::testing::Test {
 protected:
  std::string WriteFile(const std::string& name, const std::string& text, mode_t mode = 0600) {
    const std::string path = absl::StrCat(folder_.path(), "/", name);
    std::ofstream(path) << text;
    EXPECT_EQ(chmod(path.c_str(), mode), 0);
    return path;
  }
  static Caller WithToken(const std::string& authorization, const std::string& certificate_name = "") {
    return {"ipv4:127.0.0.1:1", {{"authorization", authorization}}, certificate_name};
  }
  static absl::StatusCode Code(const PrincipalSource& source, const Caller& caller) {
    return source.Identify(caller).status().code();
  }

  const testing::TempDir folder_;
};

TEST_F(CallerSecurityTest, WithoutOptionsEverybodyIsAnonymous) {
  const auto security = CallerSecurity::Open({});
  ASSERT_TRUE(security.ok()) << security.status();
  EXPECT_EQ(*(*security)->Identify(WithToken("Bearer whatever")), "anonymous");
  EXPECT_EQ((*security)->tls(), nullptr);
}

TEST_F(CallerSecurityTest, ATokenComesBeforeACertificateAndAWrongOneIsNeverPassedOver) {
  ServerOptions options;
  options.token_file = WriteFile("tokens", absl::StrCat("ann:", kAnnsToken, "\n"));
  const auto security = CallerSecurity::Open(options);
  ASSERT_TRUE(security.ok()) << security.status();
  const PrincipalSource& source = **security;
  EXPECT_EQ(*source.Identify(WithToken(absl::StrCat("Bearer ", kAnnsToken))), "ann");
  EXPECT_EQ(*source.Identify(WithToken(absl::StrCat("bearer ", kAnnsToken), "carol")), "ann");
  EXPECT_EQ(*source.Identify({"", {}, "carol"}), "carol");
  constexpr auto kNobody = absl::StatusCode::kUnauthenticated;
  EXPECT_EQ(Code(source, {"", {}, ""}), kNobody);
  EXPECT_EQ(Code(source, WithToken("", "carol")), kNobody);
  EXPECT_EQ(Code(source, WithToken(absl::StrCat("Bearer ", kBobsToken), "carol")), kNobody);
  EXPECT_EQ(Code(source, WithToken(absl::StrCat("Basic ", kAnnsToken), "carol")), kNobody);
  Caller twice = WithToken(absl::StrCat("Bearer ", kAnnsToken));
  twice.metadata.emplace("authorization", absl::StrCat("Bearer ", kAnnsToken));
  EXPECT_EQ(Code(source, twice), kNobody);
}

TEST_F(CallerSecurityTest, ACertificateCannotNameAUidNorForgeALine) {
  ServerOptions options;
  options.token_file = WriteFile("tokens", absl::StrCat("ann:", kAnnsToken, "\n"));
  const auto security = CallerSecurity::Open(options);
  ASSERT_TRUE(security.ok()) << security.status();
  for (const std::string& name : {std::string("uid:0"), std::string("UID:0"), std::string("a\nb"),
                                  std::string("a\0b", 3), std::string(257, 'a'), std::string("\xff")}) {
    EXPECT_EQ(Code(**security, {"", {}, name}), absl::StatusCode::kUnauthenticated) << name;
  }
}

TEST_F(CallerSecurityTest, RefusesATokenFileThatOthersMayReadOrThatHasNone) {
  const auto error = [&](const std::string& path) {
    ServerOptions options;
    options.token_file = path;
    const absl::Status status = CallerSecurity::Open(options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  const std::string line = absl::StrCat("ann:", kAnnsToken, "\n");
  EXPECT_THAT(error(WriteFile("world", line, 0604)), HasSubstr("0604"));
  EXPECT_THAT(error(WriteFile("group", line, 0620)), HasSubstr("0620"));
  EXPECT_THAT(error(WriteFile("empty", "# nothing\n")), HasSubstr("no token"));
  EXPECT_THAT(error(WriteFile("bad", "ann\n")), HasSubstr("line 1"));
  EXPECT_THAT(error(folder_.path() + "/none"), HasSubstr("--token_file"));
  ServerOptions options;
  options.token_file = WriteFile("shared", line, 0640);
  EXPECT_TRUE(CallerSecurity::Open(options).ok());
}

TEST_F(CallerSecurityTest, TakesUpAChangedTokenFileAndKeepsTheOldOneWhereItIsBad) {
  ServerOptions options;
  options.token_file = WriteFile("tokens", absl::StrCat("ann:", kAnnsToken, "\n"));
  const auto security = CallerSecurity::Open(options);
  ASSERT_TRUE(security.ok()) << security.status();
  const Caller ann = WithToken(absl::StrCat("Bearer ", kAnnsToken));
  const Caller bob = WithToken(absl::StrCat("Bearer ", kBobsToken));
  WriteFile("tokens", "nonsense\n");
  (*security)->Refresh();
  EXPECT_TRUE((*security)->Identify(ann).ok());
  WriteFile("tokens", absl::StrCat("bob:", kBobsToken, "\n"));
  (*security)->Refresh();
  EXPECT_FALSE((*security)->Identify(ann).ok());
  EXPECT_EQ(*(*security)->Identify(bob), "bob");
  // All of them revoked.
  WriteFile("tokens", "# nobody\n");
  (*security)->Refresh();
  EXPECT_FALSE((*security)->Identify(bob).ok());
}

// What a client does at the socket beside a Unix address.
std::string ReadSocket(const std::string& path) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path, path.c_str(), path.size() + 1);
  std::string text;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0) {
    std::array<char, 64> piece{};
    ssize_t count = 0;
    while ((count = recv(fd, piece.data(), piece.size(), 0)) > 0)
      text.append(piece.data(), static_cast<std::size_t>(count));
  }
  close(fd);
  return text;
}

TEST_F(CallerSecurityTest, TheSocketBesideAUnixAddressHandsOutTheCallersUid) {
  const std::string path = folder_.path() + "/s";
  ServerOptions options;
  options.unix_principals = true;
  options.listen = {*ParseListenAddress("--listen", "127.0.0.1:0"), *ParseListenAddress("--listen", "unix:" + path)};
  {
    const auto security = CallerSecurity::Open(options);
    ASSERT_TRUE(security.ok()) << security.status();
    for (int i = 0; i < 200; ++i) {
      const std::vector<std::string> words = absl::StrSplit(ReadSocket(path + ".token"), ' ');
      ASSERT_EQ(words.size(), 2U);
      EXPECT_EQ(words[1], "600\n");
      EXPECT_EQ(*(*security)->Identify(WithToken(absl::StrCat("Bearer ", words[0]))), absl::StrCat("uid:", geteuid()));
    }
    EXPECT_EQ(Code(**security, {"", {}, ""}), absl::StatusCode::kUnauthenticated);
    const auto second = CallerSecurity::Open(options);
    EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition) << second.status();
  }
  EXPECT_NE(access((path + ".token").c_str(), F_OK), 0);
}

TEST_F(CallerSecurityTest, AnAddressTooLongForASocketBesideItIsRefused) {
  ServerOptions options;
  options.unix_principals = true;
  options.listen = {*ParseListenAddress("--listen", "unix:/" + std::string(105, 'a'))};
  EXPECT_EQ(CallerSecurity::Open(options).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace keval::server
