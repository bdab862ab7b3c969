// How checkpoints may hold the weight of a linear layer or of an expert: codes, FP8 (e4m3), INT8 or e2m1, two in a byte
// (MXFP4, NVFP4), and their scales, `weight ~ code * scale`, times NVFP4's second one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "layercast/dtype.h"
#include "layercast/export.h"
#include "layercast/tensor.h"

namespace layercast {

// Value.
struct LAYERCAST_PUBLIC QuantizedForm {
  enum class Scales : std::uint8_t { kTensor, kChannel, kBlock };
  Scales scales = Scales::kTensor;
  DType codes = DType::kF8E4M3;                     // or kI8, or kF4: see Mxfp4 and Nvfp4
  DType scale_dtype = DType::kF32;                  // as they are stored: or kF8E4M3, or kU8, exponents (e8m0)
  std::int64_t block_rows = 128, block_cols = 128;  // kBlock
  bool power_of_two = false;                        // the scales are powers of two
  std::string checkpoint_scale = "weight_scale";    // what checkpoints call the scales, within the layer
  std::string other_scale{};                        // or so; empty: they do not
  bool has_global_scale = false;                    // a second one, of the whole weight (NVFP4)
  // Integers of 4 or 8 bits, offset by half their range, packed into I32 from the low end on (compressed-tensors'
  // pack-quantized); no recipe makes them. 0: none.
  int packed_bits = 0;
  bool has_zero_points = false;  // of integers: a value is (code - zero point) * scale; no recipe makes them
  bool in_blocks = false;        // MXFP4 of stacked experts as GPT-OSS has them: [experts, rows, cols/32, 16]

  // Whether a whole weight has a number, its only scale or its second.
  bool has_number() const { return scales == Scales::kTensor || has_global_scale; }
  // The recipe whose kernel tensors are such; empty: there is none.
  std::string_view recipe() const;
  bool NamesScale(std::string_view name) const {
    return name == checkpoint_scale || (!other_scale.empty() && name == other_scale);
  }
  // What that recipe calls the scales.
  std::string_view kernel_scale() const;
  // Shape of the scales of a weight [rows, cols]. Blocks at the ends may be partial.
  Shape ScaleShape(std::int64_t rows, std::int64_t cols) const;
  // As they are stored.
  DType code_dtype() const { return packed_bits != 0 ? DType::kI32 : codes == DType::kF4 ? DType::kU8 : codes; }
  std::int64_t codes_per_element() const { return packed_bits != 0 ? 32 / packed_bits : codes == DType::kF4 ? 2 : 1; }

  // What a checkpoint adds to the name of a stack of experts to call their scales, what it usually adds first:
  // "_scale_inv", "_weight_scale_inv", ".weight_scale_inv".
  std::vector<std::string> StackedScales() const;
  // And its second ones, where the form has them: "_weight_scale_2"; or their reciprocals: "_weight_global_scale".
  std::vector<std::string> StackedGlobalScales() const;
  std::vector<std::string> StackedGlobalReciprocals() const;

  // Exponents (e8m0) of blocks of 1 x 32: of e2m1 codes in rows, of those in GPT-OSS's blocks, and of e4m3 codes.
  static QuantizedForm Mxfp4();
  static QuantizedForm Mxfp4InBlocks();
  static QuantizedForm Mxfp8();
  // e4m3 scales of blocks of 1 x 16, and one of the whole weight. No recipe makes blocks of another size.
  static constexpr std::int64_t kNvfp4Columns = 16;
  static QuantizedForm Nvfp4(std::int64_t block_cols = kNvfp4Columns);
  static constexpr std::string_view kGlobalScale = "weight_scale_2";  // what that one is called
  // By compressed-tensors, which stores one divided by it; and what it calls e2m1 codes.
  static constexpr std::string_view kGlobalReciprocal = "weight_global_scale";
  static constexpr std::string_view kPackedCodes = "weight_packed";
  static constexpr std::string_view kZeroPoint = "weight_zero_point";

  bool operator==(const QuantizedForm&) const = default;
};

}  // namespace layercast
