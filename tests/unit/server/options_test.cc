#include "server/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/flags/reflection.h"
#include "absl/strings/str_cat.h"
#include "server/ready_file.h"

namespace keval::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class OptionsTest : public ::testing::Test {
 protected:
  absl::StatusOr<CommandLine> Parse(std::vector<std::string> arguments) {
    const absl::FlagSaver saver;
    arguments.insert(arguments.begin(), {"--data_dir", "/tmp/keval-unused"});
    return ParseCommandLine(arguments);
  }
  std::string ErrorOf(const std::vector<std::string>& arguments) {
    const absl::Status status = Parse(arguments).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_EQ(status.message().find('\n'), absl::string_view::npos);
    return std::string(status.message());
  }
};

std::vector<std::string> Texts(const std::vector<ListenAddress>& addresses) {
  std::vector<std::string> texts;
  texts.reserve(addresses.size());
  for (const ListenAddress& address : addresses) texts.push_back(address.Text());
  return texts;
}

TEST_F(OptionsTest, DefaultsAreLoopbackPorts) {
  const absl::StatusOr<CommandLine> line = Parse({});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_THAT(Texts(line->options.listen), ElementsAre("127.0.0.1:7400"));
  EXPECT_EQ(line->options.bulk_listen->Text(), "127.0.0.1:7401");
  EXPECT_EQ(line->options.health_listen->Text(), "127.0.0.1:7402");
  EXPECT_FALSE(line->options.metrics_asked);
  EXPECT_EQ(line->options.job_retention_days, 90);
  EXPECT_EQ(line->options.max_stored_jobs, 10000);
}

TEST_F(OptionsTest, RetentionCanBeTurnedOff) {
  const absl::StatusOr<CommandLine> line = Parse({"--job_retention_days=0", "--max_stored_jobs", "0"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->options.job_retention_days, 0);
  EXPECT_EQ(line->options.max_stored_jobs, 0);
  EXPECT_THAT(ErrorOf({"--job_retention_days", "-1"}), HasSubstr("--job_retention_days"));
  EXPECT_THAT(ErrorOf({"--job_retention_days", "40000"}), HasSubstr("[0, 36500]"));
  EXPECT_THAT(ErrorOf({"--max_stored_jobs", "-1"}), HasSubstr("--max_stored_jobs"));
  EXPECT_THAT(ErrorOf({"--max_stored_tensors_per_caller", "0"}), HasSubstr("--max_stored_tensors_per_caller"));
}

TEST_F(OptionsTest, PortZeroMakesTheOthersZeroUnlessTheySayOtherwise) {
  const absl::StatusOr<CommandLine> line = Parse({"--listen=127.0.0.1:0", "--health_listen", "127.0.0.1:7000"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->options.bulk_listen->Text(), "127.0.0.1:0");
  EXPECT_EQ(line->options.health_listen->Text(), "127.0.0.1:7000");
}

TEST_F(OptionsTest, ListenIsRepeatedOrSeparatedByCommas) {
  const absl::StatusOr<CommandLine> line =
      Parse({"--listen", "127.0.0.1:1,unix:/tmp/keval.sock", "--listen=[::1]:2", "--health_listen=none"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_THAT(Texts(line->options.listen), ElementsAre("127.0.0.1:1", "unix:/tmp/keval.sock", "[::1]:2"));
  EXPECT_FALSE(line->options.health_listen.has_value());
}

TEST_F(OptionsTest, OffLoopbackNeedsTlsAndAuthenticationOrInsecure) {
  const std::vector<std::string> everywhere = {"--listen", "0.0.0.0:0"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), everywhere.begin(), everywhere.end());
    return Parse(more).ok();
  };
  EXPECT_FALSE(with({"--token_file=t"})) << "tokens in clear text";
  EXPECT_FALSE(with({"--tls_cert=c", "--tls_key=k"})) << "callers not told apart";
  EXPECT_FALSE(with({"--unix_principals"}));
  EXPECT_TRUE(with({"--tls_cert=c", "--tls_key=k", "--token_file=t"}));
  EXPECT_TRUE(with({"--tls_cert=c", "--tls_key=k", "--tls_client_ca=a"}));
  EXPECT_TRUE(with({"--token_file=t", "--insecure"}));
}

TEST_F(OptionsTest, TlsFilesBelongTogether) {
  EXPECT_THAT(ErrorOf({"--tls_cert", "c"}), HasSubstr("--tls_key"));
  EXPECT_THAT(ErrorOf({"--tls_key", "k"}), HasSubstr("--tls_cert"));
  EXPECT_THAT(ErrorOf({"--tls_client_ca", "a"}), HasSubstr("--tls_cert"));
}

TEST_F(OptionsTest, AnAdvertisedBulkAddressMustBeOneThatClientsCanDial) {
  for (const char* text : {"gpu-node.example:7401", "10.0.0.7:7401", "[fd00::7]:7401", "unix:/run/keval/bulk"}) {
    const absl::StatusOr<CommandLine> line = Parse({"--advertise_bulk", text});
    ASSERT_TRUE(line.ok()) << line.status();
    EXPECT_EQ(line->options.advertise_bulk, text);
  }
  for (const char* text :
       {"gpu-node", "gpu-node:0", "gpu node:7401", "https://gpu-node:7401", "gpu-node:x", "unix:bulk"}) {
    EXPECT_THAT(ErrorOf({"--advertise_bulk", text}), HasSubstr("--advertise_bulk")) << text;
  }
  EXPECT_THAT(ErrorOf({"--advertise_bulk", "gpu-node:7401", "--bulk_listen", "none"}), HasSubstr("--bulk_listen none"));
}

TEST_F(OptionsTest, OffLoopbackNeedsInsecure) {
  EXPECT_THAT(ErrorOf({"--listen", "0.0.0.0:0"}), HasSubstr("--insecure"));
  EXPECT_THAT(ErrorOf({"--listen", "[::]:0"}), HasSubstr("--insecure"));
  EXPECT_THAT(ErrorOf({"--bulk_listen", "0.0.0.0:0"}), HasSubstr("--bulk_listen"));
  EXPECT_TRUE(Parse({"--listen", "0.0.0.0:0", "--insecure"}).ok());
  EXPECT_FALSE(Parse({"--listen", "0.0.0.0:0", "--noinsecure"}).ok());
}

TEST_F(OptionsTest, BadLinesAreNamed) {
  EXPECT_THAT(ErrorOf({"--lisen", "x"}), HasSubstr("--lisen"));
  EXPECT_THAT(ErrorOf({"serve"}), HasSubstr("serve"));
  EXPECT_THAT(ErrorOf({"--ready_file"}), HasSubstr("--ready_file"));
  EXPECT_THAT(ErrorOf({"--max_threads", "many"}), HasSubstr("--max_threads"));
  EXPECT_THAT(ErrorOf({"--max_threads", "1"}), HasSubstr("[16, 65536]"));
  EXPECT_THAT(ErrorOf({"--log_level", "loud"}), HasSubstr("loud"));
  EXPECT_THAT(ErrorOf({"--max_job_device_seconds", "0,5"}), HasSubstr("0,5"));
  EXPECT_THAT(ErrorOf({"--listen", ""}), HasSubstr("--listen"));
  EXPECT_THAT(ErrorOf({"--listen", "\x1b[31m:x"}), ::testing::Not(HasSubstr("\x1b")));
}

TEST(ListenAddressTest, RefusesWhatIsNoAddress) {
  for (const char* text : {"", "host", ":1", "host:", "host:65536", "host:-1", "host:1x", "::1:5", "[::1:5", "[]:5",
                           "unix:relative", "unix:"}) {
    EXPECT_FALSE(ParseListenAddress("--listen", text).ok()) << text;
  }
  EXPECT_FALSE(ParseListenAddress("--listen", absl::StrCat("unix:/", std::string(200, 'a'))).ok());
}

TEST(ListenAddressTest, LoopbackIsLocal) {
  for (const char* text : {"127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "unix:/tmp/s"}) {
    EXPECT_TRUE(IsLocal(*ParseListenAddress("--listen", text))) << text;
  }
  for (const char* text : {"0.0.0.0:1", "[::]:1", "10.0.0.1:1", "no-such-host.invalid:1"}) {
    EXPECT_FALSE(IsLocal(*ParseListenAddress("--listen", text))) << text;
  }
}

class UnixSocketTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = absl::StrCat(::testing::TempDir(), "keval-socket-XXXXXX");
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    path_ = absl::StrCat(folder_, "/s");
    address_ = ListenAddress{"", 0, path_};
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // A listening socket, as a server has it; closing it leaves the file, as kill -9 does.
  int Listen() const {
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::memcpy(name.sun_path, path_.c_str(), path_.size() + 1);
    EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&name), sizeof(name)), 0);
    EXPECT_EQ(listen(fd, 1), 0);
    return fd;
  }

  std::string folder_;
  std::string path_;
  ListenAddress address_;
};

TEST_F(UnixSocketTest, KilledServersSocketIsTakenOver) {
  close(Listen());
  ASSERT_TRUE(std::filesystem::exists(path_));
  EXPECT_TRUE(PrepareToListen("--listen", address_).ok());
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(UnixSocketTest, LivingServersSocketIsLeftAlone) {
  const int fd = Listen();
  const absl::Status status = PrepareToListen("--listen", address_);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr(path_));
  EXPECT_TRUE(std::filesystem::exists(path_));
  close(fd);
}

TEST_F(UnixSocketTest, RegularFileIsNeverRemoved) {
  std::ofstream(path_) << "precious";
  const absl::Status status = PrepareToListen("--listen", address_);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr(path_));
  std::string content;
  std::ifstream(path_) >> content;
  EXPECT_EQ(content, "precious");
}

TEST_F(UnixSocketTest, MissingFolderIsNamed) {
  const absl::Status status = PrepareToListen("--listen", ListenAddress{"", 0, folder_ + "/none/s"});
  EXPECT_THAT(std::string(status.message()), HasSubstr("/none/s"));
}

TEST(ReadyFileTest, HoldsAddressesAndIsWrittenWhole) {
  const std::string text = ReadyText({{"127.0.0.1:7400", "unix:/s"}, "127.0.0.1:7401", std::nullopt, std::nullopt}, 42);
  EXPECT_EQ(text,
            "{\"control\":\"127.0.0.1:7400\",\"control_all\":[\"127.0.0.1:7400\",\"unix:/s\"],"
            "\"bulk\":\"127.0.0.1:7401\",\"health\":null,\"metrics\":null,\"pid\":42}\n");
  const std::string path = absl::StrCat(::testing::TempDir(), "keval-ready-", getpid());
  ASSERT_TRUE(WriteReadyFile(path, text).ok());
  std::ifstream file(path);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), text);
  std::filesystem::remove(path);
  EXPECT_THAT(std::string(WriteReadyFile("/no/such/folder/ready", text).message()), HasSubstr("/no/such/folder/ready"));
}

}  // namespace
}  // namespace keval::server
