#include "src/base/memory/caching_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "layercast/error.h"
#include "src/base/memory/counting_memory.h"

namespace layercast {
namespace {

struct CachingMemoryTest : ::testing::Test {
  HostMemory host;
  CountingMemory upstream{host};
  CachingMemory memory{upstream};
};

TEST_F(CachingMemoryTest, HandsOutAgainWhatItWasGivenBack) {
  const std::byte* address = Buffer(memory, 100).data();
  EXPECT_EQ(Buffer(memory, 100).data(), address);
  EXPECT_EQ(Buffer(memory, 40).data(), address) << "a block that is large enough serves a smaller request";
  EXPECT_EQ(upstream.allocations(), 1U);
}

TEST_F(CachingMemoryTest, NeverHandsOutABlockThatIsInUse) {
  std::vector<Buffer> used;
  for (int i = 0; i < 8; ++i) used.emplace_back(memory, 64);
  for (const Buffer& buffer : used) std::fill_n(buffer.data(), 64, static_cast<std::byte>(&buffer - used.data()));
  for (const Buffer& buffer : used) EXPECT_EQ(buffer.data()[63], static_cast<std::byte>(&buffer - used.data()));
  EXPECT_EQ(upstream.allocations(), 8U);
}

TEST_F(CachingMemoryTest, TakesTheSmallestBlockThatFits) {
  const std::byte* address = nullptr;
  {
    const Buffer large(memory, 100);
    const Buffer small(memory, 10);
    const Buffer middle(memory, 50);
    address = middle.data();
  }
  EXPECT_EQ(Buffer(memory, 40).data(), address);
}

TEST_F(CachingMemoryTest, HoldsNoMoreThanTheLargestRequestWhileOneIsUsedAtATime) {
  std::size_t largest = 0;
  for (const std::size_t bytes : {30U, 10U, 50U, 50U, 20U, 80U, 1U, 70U}) {
    const Buffer buffer(memory, bytes);
    largest = std::max(largest, std::size_t{bytes});
    EXPECT_EQ(upstream.current_bytes(), largest);
  }
  EXPECT_EQ(upstream.peak_bytes(), 80U);
  EXPECT_EQ(upstream.allocations(), 3U);
}

TEST_F(CachingMemoryTest, GivesBackWhatIsNotUsedWhenTold) {
  const Buffer used(memory, 100);
  { const Buffer kept(memory, 50); }
  EXPECT_EQ(upstream.current_bytes(), 150U);
  memory.Release();
  EXPECT_EQ(upstream.current_bytes(), 100U);
}

TEST_F(CachingMemoryTest, OfTheSameSizeAllocatesNothingForRequestsThatWereMadeBefore) {
  CachingMemory same_size(upstream, ServedBy::kSameSize);
  // Small and large ones by turns, some of them while others live: what is large enough would be taken by small ones.
  const auto round = [&] {
    const Buffer small(same_size, 10);
    { const Buffer large(same_size, 100); }
    const Buffer middle(same_size, 50);
    const Buffer other(same_size, 10);
    const Buffer large(same_size, 100);
  };
  round();
  const std::size_t first = upstream.allocations();
  EXPECT_EQ(first, 4U);
  for (int i = 0; i < 3; ++i) round();
  EXPECT_EQ(upstream.allocations(), first);
  EXPECT_EQ(upstream.current_bytes(), 170U);
}

TEST_F(CachingMemoryTest, GivesBackWhatNobodyUsedBetweenTwoCalls) {
  CachingMemory same_size(upstream, ServedBy::kSameSize);
  { const Buffer seldom(same_size, 100); }
  const std::byte* address = Buffer(same_size, 10).data();
  same_size.ReleaseIdle();
  EXPECT_EQ(upstream.current_bytes(), 110U);
  EXPECT_EQ(Buffer(same_size, 10).data(), address);
  same_size.ReleaseIdle();
  EXPECT_EQ(upstream.current_bytes(), 10U);
}

// Has room for so many bytes.
struct LittleMemory final : MemoryResource {
  explicit LittleMemory(std::size_t room) : left(room) {}
  std::byte* Allocate(std::size_t bytes) override {
    if (bytes > left) throw Error(ErrorCode::kResourceExhausted, "full");
    left -= bytes;
    return host.Allocate(bytes);
  }
  void Deallocate(std::byte* address, std::size_t bytes) noexcept override {
    left += bytes;
    host.Deallocate(address, bytes);
  }
  HostMemory host;
  std::size_t left;
};

TEST(CachingMemory, OfTheSameSizeGivesBackWhatItKeepsBeforeThereIsTooLittle) {
  LittleMemory little(150);
  CachingMemory memory(little, ServedBy::kSameSize);
  { const Buffer buffer(memory, 100); }
  const Buffer other(memory, 60);
  EXPECT_THROW(Buffer(memory, 100), Error);
}

TEST(CachingMemory, GivesEverythingBackInTheEnd) {
  HostMemory host;
  CountingMemory upstream(host);
  {
    CachingMemory memory(upstream);
    { const Buffer buffer(memory, 100); }
    EXPECT_EQ(upstream.current_bytes(), 100U);
  }
  EXPECT_EQ(upstream.current_bytes(), 0U);
}

// Full whenever asked.
struct NoMemory final : MemoryResource {
  std::byte* Allocate(std::size_t) override { throw Error(ErrorCode::kResourceExhausted, "full"); }
  void Deallocate(std::byte*, std::size_t) noexcept override {}
};

TEST(CachingMemory, PassesOnThatThereIsNone) {
  NoMemory none;
  CachingMemory memory(none);
  EXPECT_THROW(Buffer(memory, 1), Error);
}

}  // namespace
}  // namespace layercast
