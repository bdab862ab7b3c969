// The shared arena: what is freed serves again, what is handed over cannot be changed, and mappings are kept.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "layercast/error.h"
#include "src/transport/shm/arena.h"
#include "src/transport/shm/shm_fetching_end.h"
#include "tests/conformance/published_bytes.h"
#include "tests/support/error_of.h"

namespace layercast {
namespace {

using shm_channel::Arena;
using shm_channel::Location;
using shm_channel::SegmentCache;

TEST(ShmArena, GivesTheSameMemoryToVersionsOfTheSameSizes) {
  Arena arena;
  const std::vector<std::size_t> sizes{1, 4096, 100'000, 63, 0, 3'000'000, 65};
  std::vector<std::byte*> first;
  for (int version = 0; version < 10; ++version) {
    std::vector<Buffer> buffers;
    for (const std::size_t size : sizes) {
      buffers.emplace_back(arena, size);
      std::memset(buffers.back().data(), version, size);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffers.back().data()) % 64, 0U);
    }
    std::vector<std::byte*> addresses;
    for (const Buffer& buffer : buffers) addresses.push_back(buffer.data());
    if (version == 0) first = addresses;
    EXPECT_EQ(addresses, first);
  }
  EXPECT_EQ(arena.segments(), 1U);
}

TEST(ShmArena, NeverHandsOutTheSameBytesTwice) {
  Arena arena;
  std::mt19937 random(3);
  struct Block {
    Buffer buffer;
    std::byte mark;
  };
  std::vector<Block> blocks;
  for (int step = 0; step < 2000; ++step) {
    if (!blocks.empty() && random() % 3 == 0) {
      const std::size_t victim = random() % blocks.size();
      std::swap(blocks[victim], blocks.back());
      const Block& block = blocks.back();
      for (const std::byte byte : block.buffer.span()) ASSERT_EQ(byte, block.mark);
      blocks.pop_back();
      continue;
    }
    Block& block = blocks.emplace_back(Block{Buffer(arena, random() % 5000), static_cast<std::byte>(step)});
    std::fill(block.buffer.span().begin(), block.buffer.span().end(), block.mark);
  }
  blocks.clear();
  const Buffer whole(arena, (std::size_t{256} << 20) - 4096);  // all ranges have been joined again
  EXPECT_EQ(arena.segments(), 1U);
}

TEST(ShmArena, LetsGoOfSegmentsThatAreTooSmall) {
  Arena arena;
  { const Buffer small(arena, 1000); }
  { const Buffer large(arena, std::size_t{300} << 20); }
  EXPECT_EQ(arena.segments(), 1U);
}

TEST(ShmArena, LeavesASegmentMappedForWhoeverStillReadsThere) {
  std::vector<std::shared_ptr<const void>> mappings;
  const std::byte* read = nullptr;
  {
    Arena arena;
    {
      const Buffer small(arena, 1000);
      const Buffer other(arena, 1000);
      std::memset(small.data(), 7, small.size());
      read = small.data();
      const int local = 0;
      mappings = arena.MappingsOf(std::vector<OfferedTensor>{
          {read, 1000}, {}, {other.data(), 1000}, {reinterpret_cast<const std::byte*>(&local), 4}});
    }
    EXPECT_EQ(mappings.size(), 1U);
    const Buffer large(arena, std::size_t{300} << 20);
    EXPECT_EQ(arena.segments(), 1U);
    EXPECT_EQ(read[999], std::byte{7});
  }
  EXPECT_EQ(read[0], std::byte{7});
}

TEST(ShmArena, RefusesWhatNoMachineHas) {
  Arena arena;
  EXPECT_THROW(arena.Allocate(~std::size_t{0}), Error);
}

TEST(ShmArena, KnowsWhatIsItsOwn) {
  Arena arena;
  const Buffer buffer(arena, 1000);
  const Location at = arena.Locate(buffer.data() + 10, 990);
  EXPECT_EQ(at.segment->file.memory.base() + at.offset, buffer.data() + 10);
  const int local = 0;
  EXPECT_THROW(arena.Locate(reinterpret_cast<const std::byte*>(&local), 4), Error);
  EXPECT_THROW(arena.Locate(buffer.data(), std::size_t{1} << 40), Error);
}

TEST(ShmArena, NobodyWhoGetsTheDescriptorCanWriteOrResize) {
  Arena arena;
  const Buffer buffer(arena, 1000);
  const int fd = arena.Locate(buffer.data(), 1000).segment->file.fd.get();
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
  EXPECT_EQ(::pwrite(fd, "x", 1, 0), -1);
  EXPECT_EQ(::ftruncate(fd, 0), -1);
  EXPECT_EQ(::ftruncate(fd, off_t{1} << 40), -1);
  EXPECT_EQ(::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
  buffer.data()[0] = std::byte{7};  // but its owner can
}

TEST(ShmArena, MemoryThatIsNotOfTheArenaCannotBeOffered) {
  const auto end = test::TransportNamed("shm")->Offering({});
  const int local = 0;
  EXPECT_THROW(end->Add({1, {{reinterpret_cast<const std::byte*>(&local), 4}}}), Error);
}

std::size_t OpenDescriptors() {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

TEST(ShmOffers, CostNoDescriptors) {
  const auto end = test::TransportNamed("shm")->Offering({});
  const Buffer buffer(*end->arena(), 1000);
  end->Add({1, {{buffer.data(), 1000}}});
  const std::size_t of_one = OpenDescriptors();
  for (std::uint64_t id = 2; id <= 1000; ++id) end->Add({id, {{buffer.data(), 1000}}});
  EXPECT_EQ(OpenDescriptors(), of_one);
}

// A receiver that looks again must not take the new table for the one that it has read.
TEST(ShmOffers, ATableInThePlaceOfAnotherIsNotTakenForIt) {
  const auto transport = test::TransportNamed("shm");
  const auto end = transport->Offering({});
  constexpr std::array<std::size_t, 1> kSizes{1000};
  const auto receiver = transport->Connect(end->address(), Deadline::After(test::kPatience));
  const auto again = transport->Connect(end->address(), Deadline::After(test::kPatience));
  std::optional<test::PublishedBytes> published(std::in_place, *end, 1, kSizes);
  test::Fetch fetch({{0, 0, 100, 1, 100}});
  EXPECT_TRUE(fetch.IsRight(test::FetchOne(*receiver, 1, fetch)));
  published.emplace(*end, 2, kSizes);
  test::Fetch nothing({});
  EXPECT_NE(testing::ErrorOf([&] { test::FetchOne(*receiver, 1, nothing); }, ErrorCode::kNotFound), "no error");
  EXPECT_TRUE(fetch.IsRight(test::FetchOne(*again, 2, fetch)));
}

// A receiver's cache, of connections to whoever `address` says.
class ShmSegmentCache : public ::testing::Test {
 protected:
  void Begin(const std::string& address) { cache_.Begin(address, -1); }
  const std::byte* Map(const std::string& address) {
    const UniqueFd& fd = location_.segment->file.fd;
    const auto map = [&] { return std::make_shared<const shm_channel::Mapping>(shm_channel::MapReadOnly(fd)); };
    return cache_.Get(shm_channel::IdentityOf(fd), address, map)->base();
  }

  Arena arena_;
  const Buffer buffer_{arena_, 1000};
  const Location location_ = arena_.Locate(buffer_.data(), 1000);
  SegmentCache cache_;
};

TEST_F(ShmSegmentCache, KeepsMappingsBetweenConnectionsAndNotForEver) {
  Begin("one");
  const std::byte* base = Map("one");
  cache_.End();
  Begin("one");
  EXPECT_EQ(Map("one"), base);
  cache_.End();
  for (int i = 0; i < 5; ++i) {
    Begin("one");
    cache_.End();
  }
  EXPECT_EQ(cache_.size(), 0U);
}

TEST_F(ShmSegmentCache, DropsTheSegmentsOfAPublisherThatWasReplaced) {
  Begin("one");
  Map("one");
  cache_.End();
  EXPECT_EQ(cache_.size(), 1U);
  Begin("two");
  cache_.End();
  EXPECT_EQ(cache_.size(), 0U);
}

TEST_F(ShmSegmentCache, KeepsTheSegmentsOfAllPublishersOfASession) {
  constexpr int kPublishers = 8;
  for (int session = 0; session < 3; ++session) {
    for (int i = 0; i < kPublishers; ++i) Begin("rank " + std::to_string(i));
    Map("rank 0");
    for (int i = 0; i < kPublishers; ++i) cache_.End();
    EXPECT_EQ(cache_.size(), 1U) << session;
  }
}

}  // namespace
}  // namespace layercast
