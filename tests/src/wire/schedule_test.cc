#include "src/wire/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "layercast/error.h"
#include "tests/support/hex.h"

namespace layercast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Schedule Sample() {
  Schedule schedule;
  schedule.Add(std::vector<Region>{{0, 16, 64, 1, 0}, {3, 0, 8, 4, 32}});
  schedule.Add(std::vector<Region>{{1, 4096, 1024, 1, 0}});
  return schedule;
}

std::string DecodeError(const std::vector<std::byte>& bytes) {
  try {
    (void)Schedule::Decode(bytes);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
    return error.what();
  }
  return "no error";
}

// The sample's encoding with a u32 or u64 put at `offset`.
template <typename T>
std::vector<std::byte> Patched(std::size_t offset, T value) {
  std::vector<std::byte> bytes = Sample().Encode();
  std::memcpy(bytes.data() + offset, &value, sizeof value);
  return bytes;
}

constexpr std::size_t kCounts = 8;                 // after magic and number of chunks
constexpr std::size_t kRegions = kCounts + 2 * 4;  // two chunks
constexpr std::size_t kRegionBytes = 36;

TEST(Schedule, KeepsChunksAndCountsTheirBytes) {
  const Schedule schedule = Sample();
  ASSERT_EQ(schedule.chunks().size(), 2U);
  EXPECT_EQ(schedule.chunks()[0].num_bytes, 96U);
  EXPECT_EQ(schedule.total_bytes(), 1120U);
  EXPECT_THAT(schedule.RegionsOf(schedule.chunks()[1]), ElementsAre(Region{1, 4096, 1024, 1, 0}));
}

TEST(Schedule, TurnsRowsWithoutGapsIntoOneRow) {
  Schedule schedule;
  schedule.Add(std::vector<Region>{{0, 16, 8, 4, 8}, {0, 16, 8, 1, 99}});
  EXPECT_THAT(schedule.regions(), ElementsAre(Region{0, 16, 32, 1, 0}, Region{0, 16, 8, 1, 0}));
}

TEST(Schedule, RefusesChunksThatCarryNothing) {
  Schedule schedule;
  EXPECT_THROW(schedule.Add({}), Error);
  EXPECT_THROW(schedule.Add(std::vector<Region>{{0, 0, 0, 1, 0}}), Error);
  EXPECT_THROW(schedule.Add(std::vector<Region>{{0, 0, 8, 2, 4}}), Error);
  EXPECT_TRUE(schedule.chunks().empty());
  EXPECT_TRUE(schedule.regions().empty());
  EXPECT_EQ(schedule.total_bytes(), 0U);
}

TEST(Schedule, ComesBackFromItsEncoding) {
  const std::vector<std::byte> bytes = Sample().Encode();
  const Schedule decoded = Schedule::Decode(bytes);
  EXPECT_EQ(decoded.Encode(), bytes);
  EXPECT_EQ(decoded.regions(), Sample().regions());
  EXPECT_EQ(decoded.total_bytes(), Sample().total_bytes());
  EXPECT_EQ(decoded.digest(), Sample().digest());
  EXPECT_TRUE(Schedule::Decode(Schedule().Encode()).chunks().empty());
}

TEST(Schedule, IsEncodedAsItsPageSays) {
  Schedule schedule;
  schedule.Add(std::vector<Region>{{7, 0x0102, 3, 2, 5}});
  const unsigned char expected[] = {'L', 'C', 'S', 'C', 1, 0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0,
                                    3,   0,   0,   0,   0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0};
  const std::vector<std::byte> bytes = schedule.Encode();
  ASSERT_EQ(bytes.size(), sizeof expected);
  EXPECT_EQ(std::memcmp(bytes.data(), expected, sizeof expected), 0);
}

TEST(Schedule, HasItsExactBytes) {
  EXPECT_EQ(test::Hex(Sample().Encode()),
            "4c43534302000000020000000100000000000000100000000000000040000000000000000100000000000000000000000000000003"
            "0000000000000000000000080000000000000004000000000000002000000000000000010000000010000000000000000400000000"
            "000001000000000000000000000000000000");
}

TEST(Schedule, RefusesBytesThatAreNotItsOwn) {
  EXPECT_THAT(DecodeError(Patched(0, std::uint32_t{0})), HasSubstr("magic"));
  EXPECT_THAT(DecodeError(Patched(4, std::uint32_t{0xFFFFFFFF})), HasSubstr("4294967295 chunks do not fit"));
  EXPECT_THAT(DecodeError(Patched(kCounts, std::uint32_t{0})), HasSubstr("a chunk without regions"));
  EXPECT_THAT(DecodeError(Patched(kCounts, std::uint32_t{0xFFFFFFFF})), HasSubstr("regions take"));
  EXPECT_THAT(DecodeError(Patched(kRegions + 12, std::uint64_t{0})), HasSubstr("holds no bytes"));
  EXPECT_THAT(DecodeError(Patched(kRegions + 28, std::uint64_t{64})), HasSubstr("one row, and a stride"));
  const std::size_t strided = kRegions + kRegionBytes;
  EXPECT_THAT(DecodeError(Patched(strided + 28, std::uint64_t{7})), HasSubstr("overlap"));
  EXPECT_THAT(DecodeError(Patched(strided + 28, std::uint64_t{8})), HasSubstr("without gaps"));
  EXPECT_THAT(DecodeError(Patched(strided + 20, ~std::uint64_t{0})), HasSubstr("exceeds 2^63 bytes"));
}

TEST(Schedule, RefusesTotalsThatOverflow) {
  std::vector<std::byte> bytes = Sample().Encode();
  const std::uint64_t huge = std::uint64_t{1} << 62;
  for (const std::size_t region : {0, 2}) {
    std::memcpy(bytes.data() + kRegions + region * kRegionBytes + 12, &huge, sizeof huge);
  }
  EXPECT_THAT(DecodeError(bytes), HasSubstr("exceeds 2^63 bytes"));
}

TEST(Schedule, RefusesEveryTruncationAndAnythingAppended) {
  const std::vector<std::byte> bytes = Sample().Encode();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const std::vector<std::byte> cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_NE(DecodeError(cut), "no error");
  }
  std::vector<std::byte> longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_NE(DecodeError(longer), "no error");
}

TEST(Schedule, DecodesOnlyWhatItWouldEncode) {
  const std::vector<std::byte> bytes = Sample().Encode();
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::vector<std::byte> flipped = bytes;
      flipped[i] ^= std::byte{static_cast<unsigned char>(1U << bit)};
      try {
        EXPECT_EQ(Schedule::Decode(flipped).Encode(), flipped);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
      }
    }
  }
}

}  // namespace
}  // namespace layercast
