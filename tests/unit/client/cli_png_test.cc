// Pictures as PNG by a converter in $PATH; a script stands in for it.
#include "client/cli/png.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/support/temp_dir.h"

namespace keval::cli {
namespace {

using ::testing::HasSubstr;

class PngTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = std::getenv("PATH");
    setenv("PATH", folder_.path().c_str(), 1);
  }
  void TearDown() override { setenv("PATH", path_.c_str(), 1); }

  // A converter that writes down how it was called, into what it makes.
  void Install(const std::string& commands) const {
    const std::string program = folder_.path() + "/rsvg-convert";
    std::ofstream(program) << "#!/bin/sh\n" << commands << "\n";
    ASSERT_EQ(chmod(program.c_str(), 0700), 0);
  }
  std::string Read(const std::string& name) const {
    std::ifstream file(folder_.path() + "/" + name);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

  const testing::TempDir folder_;
  std::string path_;
};

TEST_F(PngTest, WithoutAConverterTheRefusalNamesThePackage) {
  const absl::Status status = CheckPngConverter();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("librsvg2-bin"));
  EXPECT_EQ(WritePngs(folder_.path()).code(), absl::StatusCode::kUnavailable);
}

TEST_F(PngTest, EveryPictureIsConvertedOnWhite) {
  Install("echo \"$@\" >\"$6\"");
  EXPECT_TRUE(CheckPngConverter().ok());
  ASSERT_TRUE(WritePngs(folder_.path()).ok());
  for (const char* name : {"forest", "rounds", "clocks"}) {
    const std::string file = folder_.path() + "/" + name;
    EXPECT_EQ(Read(std::string(name) + ".png"),
              "--zoom 2 --background-color white --output " + file + ".png.unfinished " + file + ".svg\n");
  }
}

TEST_F(PngTest, AFolderIsNoOption) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder_.path());
  std::filesystem::create_directory("-folder");
  Install("echo \"$6 $7\" >\"$6\"");
  EXPECT_TRUE(WritePngs("-folder").ok());
  std::filesystem::current_path(before);
  EXPECT_EQ(Read("-folder/forest.png"), "./-folder/forest.png.unfinished ./-folder/forest.svg\n");
}

TEST_F(PngTest, APictureIsWholeOrNotThere) {
  std::ofstream(folder_.path() + "/forest.png") << "an earlier one";
  Install("echo half >\"$6\"; exit 1");
  EXPECT_EQ(WritePngs(folder_.path()).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Read("forest.png"), "an earlier one");
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/forest.png.unfinished"));
}

TEST_F(PngTest, AConverterThatFailsIsToldWithThePicture) {
  Install("exit 3");
  const absl::Status status = WritePngs(folder_.path());
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("forest.png"));
}

}  // namespace
}  // namespace keval::cli
