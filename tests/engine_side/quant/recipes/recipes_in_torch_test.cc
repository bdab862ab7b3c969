// The FP8 recipes against torch's own arithmetic and casts, byte for byte.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "engine_side/quant/codes.h"
#include "engine_side/quant/recipes/recipe_table.h"
#include "tests/engine_side/quant/recipes/hard_weights.h"
#include "tests/engine_side/quant/recipes/quantized.h"

namespace layercast {
namespace {

at::ScalarType TorchType(DType dtype) {
  return dtype == DType::kF32 ? at::kFloat : dtype == DType::kF16 ? at::kHalf : at::kBFloat16;
}

at::Tensor AsTensor(const Weight& weight) {  // contiguous weights only
  auto* data = const_cast<std::byte*>(weight.bytes.data());
  return at::from_blob(data, {weight.rows, weight.cols}, TorchType(weight.dtype)).to(at::kFloat);
}

at::Tensor Cast(const at::Tensor& values) { return values.clamp(-448.0, 448.0).to(at::kFloat8_e4m3fn).contiguous(); }

struct TorchResult {
  at::Tensor values;
  at::Tensor scales;
};

TorchResult PerTensor(const at::Tensor& w) {
  const at::Tensor scale = w.abs().amax().reshape({1}) / 448.0;
  return {Cast(w * (1.0 / scale)), scale};
}

TorchResult PerChannel(const at::Tensor& w) {
  const at::Tensor scale = (w.abs().amax(1, /*keepdim=*/true) / 448.0).clamp_min(1.0 / (448.0 * 512.0));
  return {Cast(w / scale), scale};
}

TorchResult PerBlock(const at::Tensor& w) {
  const std::int64_t rows = (w.size(0) + 127) / 128;
  const std::int64_t cols = (w.size(1) + 127) / 128;
  const at::Tensor padded = at::zeros({rows * 128, cols * 128});
  padded.slice(0, 0, w.size(0)).slice(1, 0, w.size(1)).copy_(w);
  const at::Tensor blocks = padded.view({rows, 128, cols, 128});
  const at::Tensor scale = blocks.abs().amax({1, 3}).clamp_min(1e-4) / 448.0;
  const at::Tensor quotient = (blocks * (1.0 / scale).view({rows, 1, cols, 1})).reshape_as(padded);
  return {Cast(quotient.slice(0, 0, w.size(0)).slice(1, 0, w.size(1))), scale.contiguous()};
}

void ExpectLikeTorch(const Weight& weight, const char* name, TorchResult (*recipe)(const at::Tensor&)) {
  WorkerPool pool(2);
  const Quantized got = QuantizeWhole(*MakeRecipe(name), weight.view(), {}, pool);
  const TorchResult expected = recipe(AsTensor(weight));
  ASSERT_EQ(got.tensors[0].size(), expected.values.nbytes());
  ASSERT_EQ(got.tensors[1].size(), expected.scales.nbytes());
  const auto equal = [](const std::vector<std::byte>& bytes, const at::Tensor& tensor) {
    return std::memcmp(bytes.data(), tensor.const_data_ptr(), bytes.size()) == 0;
  };
  EXPECT_TRUE(equal(got.tensors[0], expected.values)) << name << " values, " << Name(weight.dtype);
  EXPECT_TRUE(equal(got.tensors[1], expected.scales)) << name << " scales, " << Name(weight.dtype);
}

void ExpectLikeTorch(const Weight& weight) {
  ExpectLikeTorch(weight, "fp8_per_tensor", PerTensor);
  ExpectLikeTorch(weight, "fp8_per_channel", PerChannel);
  ExpectLikeTorch(weight, "fp8_per_block", PerBlock);
}

TEST(Torch, MillionsOfRandomValuesGiveTheBytesOfTorch) {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    for (const char* kind : {"random", "mixed", "bits", "floors", "ties"}) {
      SCOPED_TRACE(kind);
      ExpectLikeTorch(MakeWeight(kind, dtype, 515, 1100));
    }
  }
}

TEST(Torch, EveryFiniteBf16ValueGivesTheByteOfTorch) {
  const Weight all = MakeWeight(DType::kBF16, 256, 256, 0, [](std::int64_t r, std::int64_t c) {
    const auto bits = static_cast<std::uint32_t>(r * 256 + c);
    return (bits & 0x7f80) == 0x7f80 ? 0U : bits;
  });
  ExpectLikeTorch(all);
}

// Every fp32 value on which two codes meet, with its neighbours, and a value between: the cast alone (scale 1).
TEST(Torch, TheSlowCastRoundsAsTorchDoes) {
  std::vector<float> values;
  for (int code = 0; code < 0x7e; ++code) {
    const auto low = static_cast<float>(DecodeElement(DType::kF8E4M3, static_cast<std::uint64_t>(code)));
    const auto high = static_cast<float>(DecodeElement(DType::kF8E4M3, static_cast<std::uint64_t>(code + 1)));
    const float middle = (low + high) / 2.0F;
    for (const float value : {low, std::nextafter(middle, low), middle, std::nextafter(middle, high)}) {
      values.insert(values.end(), {value, -value});
    }
  }
  for (const float edge : {463.9F, 464.0F, std::nextafter(464.0F, 500.0F), 1e30F, INFINITY, NAN}) {
    values.insert(values.end(), {edge, -edge});
  }
  const at::Tensor cast =
      at::from_blob(values.data(), {static_cast<std::int64_t>(values.size())}, at::kFloat).to(at::kFloat8_e4m3fn);
  const auto* codes = static_cast<const std::uint8_t*>(cast.const_data_ptr());
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(EncodeE4M3(values[i]), codes[i]) << values[i];
}

}  // namespace
}  // namespace layercast
