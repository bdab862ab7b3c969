// How NCCL is found at run time, with libraries that only look like it; and what is said where it cannot be used.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "src/transport/nccl/wire/dynamic_nccl.h"
#include "tests/support/child_process.h"
#include "tests/support/error_of.h"

namespace layercast::nccl_channel {
namespace {

using layercast::testing::ErrorOf;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Fake(const std::string& name) { return test::FolderOfThisProgram() + "/lib" + name + ".so"; }

std::string WhyNot(const std::string& path) {
  return ErrorOf([&] { LoadNccl(path); }, ErrorCode::kUnsupported);
}

TEST(NcclLibrary, IsLoadedAtRunTimeAndSaysItsVersion) {
  const std::unique_ptr<NcclLibrary> library = LoadNccl(Fake("nccl_right"));
  EXPECT_EQ(library->version(), NCCL_VERSION(2, 28, 9));
  EXPECT_EQ(library->GroupStart(), ncclInvalidUsage);  // that is what the fake's functions say
}

TEST(NcclLibrary, ThatIsNotThereIsNamed) {
  EXPECT_THAT(WhyNot("/nowhere/libnccl.so.2"), HasSubstr("/nowhere/libnccl.so.2"));
}

TEST(NcclLibrary, ThatIsTooOldIsNamedWithBothVersions) {
  EXPECT_THAT(WhyNot(Fake("nccl_old")),
              AllOf(HasSubstr("libnccl_old.so"), HasSubstr("expected version 2.28.3 or newer, got 2.27.7")));
}

TEST(NcclLibrary, ThatLacksAFunctionIsNamedWithIt) {
  EXPECT_THAT(WhyNot(Fake("nccl_partial")), AllOf(HasSubstr("libnccl_partial.so"), HasSubstr("has no ncclCommAbort")));
}

TEST(NcclLibrary, IsWhereTheEnvironmentSays) {
  ::unsetenv("LAYERCAST_NCCL_LIBRARY");
  EXPECT_EQ(NcclPath(), "libnccl.so.2");
  ::setenv("LAYERCAST_NCCL_LIBRARY", "/opt/libnccl.so", 1);
  EXPECT_EQ(NcclPath(), "/opt/libnccl.so");
  ::unsetenv("LAYERCAST_NCCL_LIBRARY");
}

TEST(NcclLibrary, VersionsReadAsPeopleWriteThem) {
  EXPECT_EQ(VersionText(NCCL_VERSION(2, 28, 9)), "2.28.9");
  EXPECT_EQ(VersionText(NCCL_VERSION(2, 18, 1)), "2.18.1");
  EXPECT_EQ(VersionText(NCCL_VERSION(2, 8, 4)), "2.8.4");
}

}  // namespace
}  // namespace layercast::nccl_channel
