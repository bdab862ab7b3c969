// Kernels that read or rescale codes, on a device, against the CPU's byte for byte. Skipped by the probe where there is
// none.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "engine_side/quant/cuda/bodies/cuda_codes.h"
#include "engine_side/quant/dequantize.h"
#include "engine_side/quant/recipes/recipe_table.h"
#include "engine_side/quant/rescale.h"
#include "tests/engine_side/quant/cuda/bodies/cuda_cases.h"
#include "tests/engine_side/quant/cuda/guarded.h"
#include "tests/src/device/cuda/a_device.h"

namespace layercast {
namespace {

std::vector<std::byte> RandomBytes(std::size_t count, unsigned below) {
  std::mt19937 random(1);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() % below);
  return bytes;
}

std::uint8_t* Codes(std::byte* bytes) { return reinterpret_cast<std::uint8_t*>(bytes); }

TEST(CudaCodeKernels, RescaleAsTheCpu) {
  LAYERCAST_NEEDS_CUDA();
  CudaStream stream(0);
  CudaMemory memory(stream);
  WorkerPool pool(2);
  for (const auto& [from, to] : {std::pair(0.013F, 0.021F), std::pair(1e-40F, 2e-39F), std::pair(0.25F, 0.25F)}) {
    for (const std::size_t offset : {0U, 8U, 3U}) {
      std::vector<std::byte> codes = RandomBytes(1'000'008, 256);
      const Guarded there(stream, memory, codes, offset);
      CudaRescale(Codes(there.data()), std::ssize(codes), from, to, stream.handle());
      Rescale({Codes(codes.data()), codes.size()}, from, to, pool);
      EXPECT_TRUE(there.Read() == codes) << from << ", offset " << offset;

      std::vector<std::byte> scales = RandomBytes(codes.size() / 8, 256);
      const Guarded blocks(stream, memory, codes, offset);
      const Guarded block_scales(stream, memory, scales, offset);
      CudaRescaleNvfp4(Codes(blocks.data()), Codes(block_scales.data()), std::ssize(scales), from, to, stream.handle());
      RescaleNvfp4({Codes(codes.data()), codes.size()}, {Codes(scales.data()), scales.size()}, from, to, pool);
      EXPECT_TRUE(blocks.Read() == codes) << from << ", offset " << offset;
      EXPECT_TRUE(block_scales.Read() == scales) << from << ", offset " << offset;
    }
  }
}

TEST(CudaCodeKernels, DequantizeAsTheCpu) {
  LAYERCAST_NEEDS_CUDA();
  CudaStream stream(0);
  CudaMemory memory(stream);
  WorkerPool pool(2);
  for (const RecipeCase& c : kRecipeCases) {
    if (c.name == kCopyCase.name) continue;
    const auto recipe = MakeRecipe(c.name, c.options);
    for (const DType dtype : kWeightTypes) {
      const std::int64_t cols = c.Cols(521);
      Quantized made = QuantizeWhole(*recipe, MakeWeight("mixed", dtype, 300, cols).view(), {}, pool);
      std::vector<std::byte> expected(static_cast<std::size_t>(NumBytes(dtype, {300, cols})));
      Dequantize(recipe->Read(made.views()), dtype, expected.data(), pool);
      std::vector<Guarded> there;
      std::vector<KernelTensorView> views = made.views();
      there.reserve(views.size());
      for (std::size_t t = 0; t < views.size(); ++t) {
        views[t].data = there.emplace_back(stream, memory, made.tensors[t], 0).data();
      }
      const Guarded values(stream, memory, std::vector<std::byte>(expected.size()), 0);
      CudaDequantize(CodesOf(recipe->format(), views), dtype, values.data(), stream.handle());
      EXPECT_TRUE(values.Read() == expected) << c.name << ' ' << Name(dtype);
    }
  }
}

}  // namespace
}  // namespace layercast
