#include "src/session/signing/chunk_hashes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "layercast/error.h"
#include "src/tensor/region_views.h"
#include "tests/support/error_of.h"

namespace layercast::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<std::byte> Some(std::size_t bytes) {
  std::vector<std::byte> some(bytes);
  for (std::size_t i = 0; i < bytes; ++i) some[i] = static_cast<std::byte>(i * i >> 3);
  return some;
}

// As FORMAT.md says it.
Hash Reference(std::span<const RegionView> views) {
  std::vector<std::byte> packed(NumBytes(views));
  PackAll(views, packed.data());
  if (packed.size() <= 65'536) return HashOf(packed);
  std::vector<Hash> blocks;
  for (std::size_t at = 0; at < packed.size(); at += 65'536) {
    blocks.push_back(HashOf(std::span(packed).subspan(at).first(std::min<std::size_t>(65'536, packed.size() - at))));
  }
  return HashOf(std::as_bytes(std::span(blocks)));
}

// A device whose memory is the host's.
class PlayedDevice final : public DeviceBytes {
 public:
  void ToHost(const Device& /*device*/, const std::byte* from, std::size_t bytes, std::byte* to) override {
    std::memcpy(to, from, bytes);
    brought += bytes;
  }
  std::vector<float> AmaxOver(const Device& /*device*/, const TensorSpec& /*spec*/, const std::byte* /*data*/,
                              KeptAxes /*kept*/) override {
    return {};
  }
  std::vector<Digest> DigestsOf(const Device& /*device*/,
                                std::span<const std::vector<RegionView>> /*chunks*/) override {
    return {};
  }
  std::size_t brought = 0;
};

TEST(ChunkHashes, AreThoseOfTheFormatHoweverTheBytesLieAndHoweverManyHashThem) {
  const std::vector<std::byte> bytes = Some(300'000);
  WorkerPool pool(3);
  for (const std::size_t size : {0UL, 1UL, 65'535UL, 65'536UL, 65'537UL, 131'072UL, 200'000UL}) {
    const RegionView whole = AsView(std::span(bytes).first(size));
    EXPECT_EQ(HashOfViews({&whole, 1}, nullptr), Reference({&whole, 1})) << size;
    EXPECT_EQ(HashOfViews({&whole, 1}, &pool), Reference({&whole, 1})) << size;
  }
  const std::vector<RegionView> rows = {
      {bytes.data(), 100, 900, 300}, AsView(std::span(bytes).first(7)), {bytes.data() + 9, 3, 5, 11}};
  EXPECT_EQ(HashOfViews(rows, nullptr), Reference(rows));
  EXPECT_EQ(HashOfViews(rows, &pool), Reference(rows));
}

TEST(ChunkHashes, OfWhatLiesOnADeviceAreTheSame) {
  const std::vector<std::byte> bytes = Some(200'000);
  Schedule schedule;
  schedule.Add(std::vector<Region>{{.tensor = 0, .offset = 0, .row_bytes = 150'000, .rows = 1, .stride = 0}});
  schedule.Add(std::vector<Region>{{.tensor = 0, .offset = 3, .row_bytes = 10, .rows = 50, .stride = 100},
                                   {.tensor = 0, .offset = 190'000, .row_bytes = 9'000, .rows = 1, .stride = 0}});
  schedule.Add(std::vector<Region>{{.tensor = 0, .offset = 5, .row_bytes = 1, .rows = 1, .stride = 0}});
  Offer offer{.id = 1, .tensors = {{bytes.data(), bytes.size()}}};
  WorkerPool pool(2);
  const std::vector<Hash> expected = HashChunks(schedule, offer, 0, 3, pool, nullptr);
  EXPECT_EQ(HashChunks(schedule, offer, 1, 2, pool, nullptr), std::vector(expected.begin() + 1, expected.end()));
  offer.device = {Device::Kind::kCuda, 0};
  PlayedDevice device;
  EXPECT_EQ(HashChunks(schedule, offer, 0, 3, pool, &device), expected);
  EXPECT_EQ(device.brought, 150'000U + 49 * 100 + 10 + 9'000 + 1);
}

TEST(ChunkHashes, ThatDifferAreSaidWithBothAndTheChunk) {
  const Hash a = HashOf({}), b = HashOf(Some(1));
  CheckChunkHash(a, a, [] { return std::string("chunk 3"); });
  EXPECT_THAT(ErrorOf([&] { CheckChunkHash(a, b, [] { return std::string("chunk 3"); }); }, ErrorCode::kCorrupt),
              AllOf(HasSubstr("chunk 3: "), HasSubstr("expected " + ToHex(a)), HasSubstr("got " + ToHex(b))));
}

}  // namespace
}  // namespace layercast::testing
