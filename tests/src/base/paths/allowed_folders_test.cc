#include "src/base/paths/allowed_folders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "layercast/error.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_folder.h"

namespace layercast {
namespace {

namespace fs = std::filesystem;
using testing::ErrorOf;
using ::testing::HasSubstr;

class AllowedFoldersTest : public ::testing::Test {
 protected:
  AllowedFoldersTest() {
    for (const char* name : {"runs/step_7", "runs-too", "other"}) fs::create_directories(folder_ / name);
    folder_.Write("other/secret", "s");
    folder_.Write("runs/step_7/config.json", "{}");
  }

  std::string At(const std::string& name) const { return (root_ / name).string(); }
  AllowedFolders Runs() const { return {{At("runs/")}, "--allow-path"}; }
  void ExpectReadRefused(const std::string& path, const std::string& named) const {
    EXPECT_THAT(ErrorOf([&] { Runs().ToRead(path); }, ErrorCode::kPermissionDenied),
                HasSubstr("something that is in '" + At("runs") + "', got '" + named + "'"));
  }
  void ExpectReadRefused(const std::string& path) const { ExpectReadRefused(path, path); }
  void ExpectWriteRefused(const std::string& path) const {
    EXPECT_THAT(ErrorOf([&] { Runs().ToWrite(path); }, ErrorCode::kPermissionDenied), HasSubstr("got '" + path + "'"));
  }

  const TempFolder folder_;
  const fs::path root_ = fs::canonical(folder_.path());
};

TEST_F(AllowedFoldersTest, WhatLiesInThemIsTheirsAndNothingBeside) {
  EXPECT_EQ(Runs().ToRead(At("runs")), At("runs"));
  EXPECT_EQ(Runs().ToRead(At("runs/step_7/")), At("runs/step_7"));
  EXPECT_EQ(Runs().ToRead(At("runs/step_7/config.json")), At("runs/step_7/config.json"));
  EXPECT_EQ(Runs().ToRead(At("other/../runs/./step_7")), At("runs/step_7"));
  EXPECT_EQ(Runs().ToRead(At("runs/nowhere")), At("runs/nowhere"));  // whoever reads it says so
  EXPECT_EQ(Runs().ToRead(At("runs/nowhere/../step_7")), At("runs/step_7"));
  for (const char* name : {"", "other", "other/secret", "runs-too", "runs/../other", "other/nowhere", "nowhere"}) {
    ExpectReadRefused(At(name));
  }
  for (const char* path : {"", "step_7", "runs/step_7", "/", "/proc/self/root"}) ExpectReadRefused(path);
}

TEST_F(AllowedFoldersTest, ALinkIsWhatItLeadsTo) {
  fs::create_directory_symlink(root_ / "other", root_ / "runs/way-out");
  fs::create_directory_symlink("step_7", root_ / "runs/latest");
  fs::create_directory_symlink(root_ / "runs", root_ / "way-in");
  EXPECT_EQ(Runs().ToRead(At("runs/latest")), At("runs/step_7"));
  EXPECT_EQ(Runs().ToRead(At("way-in/step_7")), At("runs/step_7"));
  EXPECT_EQ(AllowedFolders({At("way-in")}, "--allow-path").ToRead(At("runs")), At("runs"));
  ExpectReadRefused(At("runs/way-out"));
  ExpectReadRefused(At("runs/way-out/secret"));
  ExpectReadRefused(At("runs/way-out/nowhere"));
}

TEST_F(AllowedFoldersTest, AFolderWithALinkThatLeadsOutIsRefusedByTheLinksName) {
  fs::create_symlink("config.json", root_ / "runs/step_7/copy");
  fs::create_symlink("nowhere", root_ / "runs/step_7/dangling");
  EXPECT_EQ(Runs().ToRead(At("runs/step_7")), At("runs/step_7"));
  fs::create_symlink(root_ / "other/secret", root_ / "runs/step_7/model.safetensors");
  ExpectReadRefused(At("runs/nowhere/../step_7"), At("runs/step_7/model.safetensors"));
  ExpectReadRefused(At("runs/step_7"), At("runs/step_7/model.safetensors"));
  // As where a hub's cache is: each is a link to a blob beside.
  EXPECT_EQ(AllowedFolders({At("runs"), At("other")}, "--allow-path").ToRead(At("runs/step_7")), At("runs/step_7"));
}

TEST_F(AllowedFoldersTest, WhatIsWrittenMayBeNewAndLiesWhereItsFirstFolderLeads) {
  fs::create_directory_symlink(root_ / "other", root_ / "runs/way-out");
  fs::create_symlink(root_ / "other/new", root_ / "runs/dangling");
  EXPECT_EQ(Runs().ToWrite(At("runs/a/b/")), At("runs/a/b"));
  EXPECT_EQ(Runs().ToWrite(At("runs/a/../step_7/./out")), At("runs/step_7/out"));
  EXPECT_EQ(Runs().ToWrite(At("runs")), At("runs"));
  for (const char* name : {"new", "other", "runs/way-out", "runs/way-out/new", "runs/dangling", "runs/dangling/new",
                           "runs/../new", "runs/a/../../new", "runs-too/a"}) {
    ExpectWriteRefused(At(name));
  }
  for (const char* path : {"", "a", "/", "/a"}) ExpectWriteRefused(path);
  EXPECT_THAT(ErrorOf([&] { Runs().ToWrite(At("runs/a") + std::string("\0b", 2)); }, ErrorCode::kPermissionDenied),
              HasSubstr("runs/a\\x00b"));
}

TEST_F(AllowedFoldersTest, ARootAllowsAllAndNoFolderAllowsNothing) {
  EXPECT_EQ(AllowedFolders({"/"}, "--allow-path").ToRead(At("other")), At("other"));
  EXPECT_EQ(AllowedFolders({"/"}, "--allow-path").ToWrite(At("new")), At("new"));
  EXPECT_TRUE(AllowedFolders({}, "--allow-path").empty());
  ErrorOf([&] { AllowedFolders({}, "--allow-path").ToRead(At("runs")); }, ErrorCode::kPermissionDenied);
  EXPECT_THAT(ErrorOf([&] { AllowedFolders({At("nowhere")}, "--allow-path"); }, ErrorCode::kInvalidArgument),
              HasSubstr("--allow-path: '" + At("nowhere") + "': No such file"));
}

}  // namespace
}  // namespace layercast
