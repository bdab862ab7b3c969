// How checkpoints may hold the weight of a linear layer or of an expert quantized: as codes and their scales,
// `weight ~ code * scale`, times NVFP4's second scale. Codes are FP8 (e4m3), INT8, or e2m1, two in a byte (MXFP4,
// NVFP4). Used by the layers, and where checkpoints are read.
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
  DType codes = DType::kF8E4M3;                     // or kI8, or kF4 (Mxfp4, Nvfp4)
  DType scale_dtype = DType::kF32;                  // as stored; or kF8E4M3, or kU8 for exponents (e8m0)
  std::int64_t block_rows = 128, block_cols = 128;  // of a block, for Scales::kBlock
  bool power_of_two = false;                        // the scales are powers of two
  std::string checkpoint_scale = "weight_scale";    // what checkpoints call the scales, within the layer
  std::string other_scale{};                        // another name that they may have; empty: there is none
  bool has_global_scale = false;                    // there is a second scale, of the whole weight (NVFP4)
  // Codes are integers of so many bits, 4 or 8, offset by half their range and packed into I32 from the low end on
  // (compressed-tensors' pack-quantized). No recipe makes them. 0: codes are not packed so.
  int packed_bits = 0;
  bool has_zero_points = false;  // integers have them: a value is (code - zero point) * scale; no recipe makes them
  bool in_blocks = false;        // MXFP4 of stacked experts as GPT-OSS has it: [experts, rows, cols/32, 16]

  // Whether a scale is one number for a whole weight: its only scale, or its second.
  bool has_number() const { return scales == Scales::kTensor || has_global_scale; }
  // The recipe that makes kernel tensors of this form. Empty: there is none.
  std::string_view recipe() const;
  bool NamesScale(std::string_view name) const {
    return name == checkpoint_scale || (!other_scale.empty() && name == other_scale);
  }
  // What the kernel tensor of the scales is called within the layer.
  std::string_view kernel_scale() const;
  // The shape of the scales of a weight [rows, cols]. Blocks at the ends may be partial.
  Shape ScaleShape(std::int64_t rows, std::int64_t cols) const;
  // The dtype in which codes are stored, and how many of them an element of it holds.
  DType code_dtype() const { return packed_bits != 0 ? DType::kI32 : codes == DType::kF4 ? DType::kU8 : codes; }
  std::int64_t codes_per_element() const { return packed_bits != 0 ? 32 / packed_bits : codes == DType::kF4 ? 2 : 1; }

  // The suffixes that make the name of a stack of experts the name of its scales, the usual one first: "_scale_inv",
  // "_weight_scale_inv", ".weight_scale_inv".
  std::vector<std::string> StackedScales() const;
  // The same for global scales ("_weight_scale_2") and for their reciprocals ("_weight_global_scale"). Empty if the
  // form has no global scale.
  std::vector<std::string> StackedGlobalScales() const;
  std::vector<std::string> StackedGlobalReciprocals() const;

  // The three forms whose scales are exponents (e8m0) of blocks of 1 x 32: of e2m1 codes in rows, of e2m1 codes in
  // GPT-OSS's blocks, and of e4m3 codes.
  static QuantizedForm Mxfp4();
  static QuantizedForm Mxfp4InBlocks();
  static QuantizedForm Mxfp8();
  // e2m1 codes, e4m3 scales of blocks of 1 x block_cols, and an fp32 scale of the whole weight. There is a recipe only
  // for blocks of kNvfp4Columns.
  static constexpr std::int64_t kNvfp4Columns = 16;
  static QuantizedForm Nvfp4(std::int64_t block_cols = kNvfp4Columns);
  static constexpr std::string_view kGlobalScale = "weight_scale_2";  // the scale of the whole weight
  // compressed-tensors' names: for one divided by the scale of the whole weight, which it stores instead, for e2m1
  // codes and packed integers, and for zero points.
  static constexpr std::string_view kGlobalReciprocal = "weight_global_scale";
  static constexpr std::string_view kPackedCodes = "weight_packed";
  static constexpr std::string_view kZeroPoint = "weight_zero_point";

  bool operator==(const QuantizedForm&) const = default;
};

}  // namespace layercast
