#include "engine_side/server/group/memory_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>

namespace layercast {
namespace {

constexpr std::size_t kBytes = (std::size_t{3} << 20) + 100;

class MemoryFileTest : public ::testing::Test {
 protected:
  // Bytes of the system's memory behind the file.
  std::size_t Held() const {
    struct stat status = {};
    EXPECT_EQ(::fstat(fd_.get(), &status), 0);
    return static_cast<std::size_t>(status.st_blocks) * 512;
  }

  UniqueFd fd_ = MemoryFile::Create("test");
  MemoryFile memory_{UniqueFd(::dup(fd_.get()))};
};

bool Holds(const Buffer& buffer, int value) {
  return std::ranges::all_of(buffer.span(), [&](std::byte each) { return each == static_cast<std::byte>(value); });
}

TEST_F(MemoryFileTest, GivesBackWhatIsDiscardedAndIsZeroAtTheSameAddresses) {
  const Buffer buffer(memory_, kBytes);
  for (int round = 1; round < 4; ++round) {
    std::ranges::fill(buffer.span(), static_cast<std::byte>(round));
    EXPECT_GE(Held(), kBytes);
    EXPECT_GE(memory_.Sleep(SleepLevel::kDiscard), kBytes);
    EXPECT_TRUE(memory_.asleep());
    EXPECT_EQ(Held(), 0U);
    EXPECT_EQ(memory_.Sleep(SleepLevel::kDiscard), 0U);
    memory_.Wake();
    EXPECT_FALSE(memory_.asleep());
    EXPECT_GE(Held(), kBytes);  // taken now, and not when it is touched
    EXPECT_TRUE(Holds(buffer, 0));
  }
}

TEST_F(MemoryFileTest, IsItsOwnCopyOfWhatIsKept) {
  const Buffer buffer(memory_, kBytes);
  std::ranges::fill(buffer.span(), std::byte{7});
  EXPECT_EQ(memory_.Sleep(SleepLevel::kKeep), 0U);
  EXPECT_FALSE(memory_.asleep());
  EXPECT_TRUE(Holds(buffer, 7));
}

using MemoryFileDeathTest = MemoryFileTest;

TEST_F(MemoryFileDeathTest, WhoeverTouchesItWhileItSleepsIsKilled) {
  const Buffer buffer(memory_, kBytes);
  std::ranges::fill(buffer.span(), std::byte{7});
  memory_.Sleep(SleepLevel::kDiscard);
  volatile const std::byte* const first = buffer.data();
  EXPECT_DEATH(static_cast<void>(*first), "");
}

TEST_F(MemoryFileTest, BeginsAnewWhenAllWasGivenBack) {
  std::byte* first = nullptr;
  {
    const Buffer a(memory_, 100);
    const Buffer b(memory_, kBytes);
    first = a.data();
  }
  const Buffer again(memory_, kBytes);
  EXPECT_EQ(again.data(), first);
  const Buffer behind(memory_, 100);
  EXPECT_NE(behind.data(), first);
}

}  // namespace
}  // namespace layercast
