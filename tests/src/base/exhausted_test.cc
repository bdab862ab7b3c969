// What has run out is told with what was asked for and what there was, in one form, wherever it is noticed.
#include "src/base/exhausted.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <new>
#include <string>
#include <system_error>

#include "layercast/memory.h"
#include "src/base/as_error.h"
#include "src/base/memory/buffer_for.h"
#include "src/net/wake_up.h"
#include "tests/support/error_of.h"
#include "tests/support/forked_child.h"
#include "tests/support/no_more_files.h"

namespace layercast {
namespace {

using ::testing::AllOf;
using testing::ErrorOf;
using ::testing::HasSubstr;
using testing::IsTrueInAForkedChild;
using testing::NoMoreFiles;

constexpr ErrorCode kRanOut = ErrorCode::kResourceExhausted;
constexpr std::size_t kMoreThanAnybodyHas = std::size_t{1} << 60;

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which end a process that asks for so much
TEST(Exhausted, MemoryIsToldWithItsPurposeItsSizeAndWhatThereIs) {
  HostMemory host;
  EXPECT_THAT(ErrorOf([&] { BufferFor("layer 3 in full precision", host, kMoreThanAnybodyHas); }, kRanOut),
              AllOf(HasSubstr("layer 3 in full precision"), HasSubstr(std::to_string(kMoreThanAnybodyHas) + " bytes")));
}
#endif

#ifndef __SANITIZE_THREAD__  // which needs address space of its own
TEST(Exhausted, ALimitOfTheProcessIsNamedWithWhatIsInUse) {
  EXPECT_TRUE(IsTrueInAForkedChild([] {
    constexpr rlim_t kLimit = rlim_t{1} << 46;
    const rlimit limit{kLimit, RLIM_INFINITY};
    ::setrlimit(RLIMIT_AS, &limit);
    const std::string what = OutOfMemory("a slot", 77).what();
    return what.find("asked for 77 bytes") != std::string::npos && what.find("in use") != std::string::npos &&
           what.find("RLIMIT_AS is " + std::to_string(kLimit) + " bytes") != std::string::npos;
  }));
}
#endif

// The memory of somebody's own, which reports as C++ does.
class ThrowingMemory final : public MemoryResource {
 public:
  std::byte* Allocate(std::size_t /*bytes*/) override { throw std::bad_alloc(); }
  void Deallocate(std::byte* /*address*/, std::size_t /*bytes*/) noexcept override {}
};

TEST(Exhausted, AMemoryResourceOfSomebodyElsesMayThrowWhatCppThrows) {
  ThrowingMemory memory;
  EXPECT_THAT(ErrorOf([&] { BufferFor("a chunk", memory, 5); }, kRanOut),
              AllOf(HasSubstr("a chunk"), HasSubstr("5 bytes")));
}

TEST(Exhausted, DescriptorsAreToldWithTheLimitAndWithOneThatWouldDo) {
  const NoMoreFiles none;
  EXPECT_THAT(ErrorOf([] { WakeUp(); }, kRanOut),
              AllOf(HasSubstr("RLIMIT_NOFILE"), HasSubstr("is 0"), HasSubstr("at least 1")));
  EXPECT_THAT(ErrorOf([] { ExpectRoomFor({.descriptors = 7}, "an engine's link"); }, kRanOut),
              AllOf(HasSubstr("an engine's link"), HasSubstr("at least 7")));
}

TEST(Exhausted, RoomThatIsThereIsGivenBack) {
  for (int i = 0; i < 3; ++i) ExpectRoomFor({.descriptors = 20, .threads = 4, .bytes = 1 << 20}, "much");
  EXPECT_THAT(ErrorOf([] { ExpectRoomFor({.bytes = kMoreThanAnybodyHas}, "too much"); }, kRanOut),
              HasSubstr("too much"));
}

TEST(Exhausted, WhatTheStandardLibraryThrowsIsOneOfThese) {
  EXPECT_EQ(AsError(std::bad_alloc()).code(), kRanOut);
  for (const int number : {EAGAIN, ENOMEM, EMFILE, ENFILE}) {
    const std::system_error thrown(number, std::generic_category());
    EXPECT_EQ(AsError(thrown).code(), kRanOut) << number;
  }
  EXPECT_EQ(AsError(std::system_error(EACCES, std::generic_category())).code(), ErrorCode::kInternal);
  EXPECT_EQ(SystemError(EACCES, ErrorCode::kInvalidArgument, "a file").code(), ErrorCode::kInvalidArgument);
}

TEST(Exhausted, OnlyThatIsTurnedIntoAnErrorOfWhatTheHostProgramThrows) {
  EXPECT_THAT(ErrorOf([] { NamingWhatRanOut([] { throw std::bad_alloc(); }); }, kRanOut), HasSubstr("out of memory"));
  EXPECT_THROW(NamingWhatRanOut([] { throw std::system_error(EACCES, std::generic_category()); }), std::system_error);
  EXPECT_EQ(NamingWhatRanOut([] { return 3; }), 3);
}

}  // namespace
}  // namespace layercast
