// What the CUDA kernels that rescale codes do, run on the host, against the CPU's code by code.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "engine_side/quant/cuda/bodies/rescale_body.cuh"
#include "engine_side/quant/rescale.h"
#include "tests/engine_side/quant/cuda/bodies/host_runner.h"

namespace layercast {
namespace {

constexpr float kSmallest = std::numeric_limits<float>::denorm_min();

// From a scale to a larger one; of the last ones the reciprocal is infinite.
constexpr std::pair<float, float> kScales[] = {{0.25F, 0.375F},   {0.013F, 0.021F},   {0x1.788886p-4F, 0x1.f60b5ep-4F},
                                               {0.0F, 1.0F},      {1e-30F, 1.0F},     {1e-38F, 1.1e-38F},
                                               {1.0F, 3e38F},     {0.5F, 0.5000001F}, {0x1.2fdc74p-6F, 0x1.187cbap-5F},
                                               {1e-3F, 1e-3F},    {0.0F, 0.0F},       {0.0F, kSmallest},
                                               {1e-40F, 2e-39F},  {1e-39F, 2.9e-39F}, {2e-39F, 3e-39F},
                                               {1.4e-36F, 1e-35F}};

std::vector<std::uint8_t> RandomBytes(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::uint8_t> bytes(count);
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random());
  return bytes;
}

// Memory whose bytes begin so far behind an address of 16 bytes.
class Placed {
 public:
  Placed(const std::vector<std::uint8_t>& bytes, std::size_t offset) : memory_(bytes.size() + 32) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    data_ = memory_.data() + (16 - address % 16) % 16 + offset;
    std::copy(bytes.begin(), bytes.end(), data_);
    size_ = bytes.size();
  }
  std::uint8_t* data() { return data_; }
  std::vector<std::uint8_t> bytes() const { return {data_, data_ + size_}; }

 private:
  std::vector<std::uint8_t> memory_;
  std::uint8_t* data_ = nullptr;
  std::size_t size_ = 0;
};

TEST(RescaleBodies, GiveEveryCodeOfFp8TheCpusAtEveryLengthAndAddress) {
  WorkerPool pool(1);
  std::vector<std::uint8_t> all(256 + 15);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint8_t>(i);
  for (const auto& [from, to] : kScales) {
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{15}, std::size_t{16}, all.size()}) {
      for (const std::size_t offset : {0U, 1U, 8U}) {
        std::vector<std::uint8_t> expected(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count));
        Placed codes(expected, offset);
        Rescale(expected, from, to, pool);
        cuda::RunRescale(ElementsOnHost(), codes.data(), static_cast<std::int64_t>(count), from, to);
        ASSERT_EQ(codes.bytes(), expected) << from << " to " << to << ", " << count << " codes, offset " << offset;
      }
    }
  }
}

TEST(RescaleBodies, GiveBlocksOfNvfp4TheCpusOfEveryScale) {
  WorkerPool pool(1);
  constexpr std::size_t kBlocks = 5 * 256;
  for (const auto& [from, to] : kScales) {
    for (const std::size_t offset : {0U, 8U, 3U}) {
      std::vector<std::uint8_t> expected = RandomBytes(kBlocks * 8, 1);
      std::vector<std::uint8_t> expected_scales(kBlocks);
      for (std::size_t i = 0; i < kBlocks; ++i) expected_scales[i] = static_cast<std::uint8_t>(i);
      std::fill_n(expected.begin(), 256 * 8, std::uint8_t{0x80});  // blocks of zeros, of both signs
      Placed codes(expected, offset);
      Placed scales(expected_scales, offset);
      RescaleNvfp4(expected, expected_scales, from, to, pool);
      cuda::RunRescaleNvfp4(ElementsOnHost(), codes.data(), scales.data(), kBlocks, from, to);
      ASSERT_EQ(scales.bytes(), expected_scales) << from << " to " << to;
      ASSERT_EQ(codes.bytes(), expected) << from << " to " << to << ", offset " << offset;
    }
  }
}

}  // namespace
}  // namespace layercast
