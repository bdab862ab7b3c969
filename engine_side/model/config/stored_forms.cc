#include "engine_side/model/config/stored_forms.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "engine_side/model/naming/code_names.h"

namespace layercast {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kLargestBlock = 0x7FFFFFFF;
constexpr std::int64_t kW4A8Block = 32;  // columns of a block of NVFP4 beside FP8 activations

char UpperCase(char letter) { return letter >= 'a' && letter <= 'z' ? static_cast<char>(letter - 'a' + 'A') : letter; }

// Reads the field [block rows, block columns].
void ReadBlocks(const ConfigFields& fields, const char* key, QuantizedForm& form) {
  const std::vector<std::int64_t> sizes = fields.Integers(key);
  const bool good = sizes.size() == 2 && std::ranges::min(sizes) > 0 && std::ranges::max(sizes) <= kLargestBlock;
  if (!good) fields.Refuse(key, "two sizes", *fields.Find(key));
  form.scales = QuantizedForm::Scales::kBlock;
  form.block_rows = sizes[0];
  form.block_cols = sizes[1];
}

StoredForm WhyNot(const ConfigFields& fields, const char* key, const std::string& expected) {
  const Json* got = fields.Find(key);
  return {.why_not = fields.Mismatch(key, expected, got == nullptr ? Json() : *got)};
}

// transformers calls every scale `weight_scale_inv`; others use that name only for scales of blocks.
StoredForm FormOfFp8(const ConfigFields& config) {
  QuantizedForm form;
  form.other_scale = kScalesOfBlocks;
  if (config.Find("weight_block_size") != nullptr) {
    ReadBlocks(config, "weight_block_size", form);
    form.power_of_two = config.Text("scale_fmt", "") == "ue8m0";
    form.checkpoint_scale = kScalesOfBlocks;
    form.other_scale.clear();
  }
  return {form};
}

// SGLang's form. Its scales have the name that scales of larger blocks have.
StoredForm FormOfMxfp8(const ConfigFields& config) {
  QuantizedForm form = QuantizedForm::Mxfp8();
  form.checkpoint_scale = kScalesOfBlocks;
  if (config.Find("weight_block_size") != nullptr) {
    QuantizedForm blocks;
    ReadBlocks(config, "weight_block_size", blocks);
    if (blocks.block_rows != form.block_rows || blocks.block_cols != form.block_cols) {
      return WhyNot(config, "weight_block_size", "[1,32]");
    }
  }
  if (config.Text("scale_fmt", "ue8m0") != "ue8m0") return WhyNot(config, "scale_fmt", "'ue8m0'");
  return {std::move(form)};
}

// `form`, if the "group_size" in `sizes` is absent or equals the columns of the form's blocks.
StoredForm OfGroups(QuantizedForm form, const ConfigFields& sizes) {
  if (sizes.Integer("group_size", 1, kLargestBlock).value_or(form.block_cols) != form.block_cols) {
    return WhyNot(sizes, "group_size", std::to_string(form.block_cols));
  }
  return {std::move(form)};
}

StoredForm FormOfCompressedFloats(const ConfigFields& weights) {
  QuantizedForm form;
  const std::string strategy = weights.Text("strategy", "");
  if (strategy == "group") return OfGroups(QuantizedForm::Mxfp8(), weights);
  if (strategy == "block") {
    if (weights.Find("block_structure") == nullptr) return WhyNot(weights, "block_structure", "two sizes");
    ReadBlocks(weights, "block_structure", form);
  } else if (strategy == "channel") {
    form.scales = QuantizedForm::Scales::kChannel;
  } else if (strategy != "tensor") {
    return WhyNot(weights, "strategy", "'tensor', 'channel', 'block' or 'group'");
  }
  return {form};
}

// `form` with a scale for each group of columns, or for each row.
StoredForm IntegersInGroups(QuantizedForm form, const ConfigFields& weights) {
  const std::string strategy = weights.Text("strategy", "");
  form.has_zero_points = !weights.Flag("symmetric", true);
  if (strategy == "channel") {
    form.scales = QuantizedForm::Scales::kChannel;
  } else if (strategy == "group" && weights.Find("group_size") != nullptr) {
    form.scales = QuantizedForm::Scales::kBlock;
    form.block_rows = 1;
    form.block_cols = weights.Integer("group_size", 1, kLargestBlock).value_or(1);
  } else {
    return WhyNot(weights, "strategy", "'channel', or 'group' with a group_size");
  }
  return {std::move(form)};
}

// A form that is only dequantized, never taken as it is.
StoredForm FormOfPackedIntegers(const ConfigFields& weights) {
  const std::int64_t bits = weights.Integer("num_bits", 1, 64).value_or(0);
  if (bits != 4 && bits != 8) return WhyNot(weights, "num_bits", "4 or 8 of packed integers");
  const std::string order = weights.Text("actorder", "static");
  if (order != "static" && order != "weight") {  // two names for the same order
    return WhyNot(weights, "actorder", "null, 'weight' or 'static', columns in their order");
  }
  return IntegersInGroups({.codes = DType::kI8, .packed_bits = static_cast<int>(bits)}, weights);
}

// Integers of one code per byte, whatever their number of bits. `format` is the object that says how the codes are
// stored: the group's, or the one for all groups.
StoredForm FormOfCompressedIntegers(const ConfigFields& weights, const ConfigFields& format) {
  const std::string stored = format.Text("format", "int-quantized");
  if (stored != "int-quantized" && stored != "naive-quantized") {
    return WhyNot(format, "format", "'int-quantized', a code in a byte");
  }
  return IntegersInGroups({.codes = DType::kI8}, weights);
}

}  // namespace

StoredForm FormOfGroup(const ConfigFields& group, const std::string& name, const ConfigFields& config) {
  const Json* of_weights = group.Find("weights");
  if (of_weights == nullptr) return WhyNot(group, "weights", "an object");
  const ConfigFields weights(*of_weights, name + "weights.");
  const std::string type = weights.Text("type", "");
  const auto bits = weights.Integer("num_bits", 1, 64);
  const ConfigFields& format = group.Find("format") == nullptr ? config : group;
  if (type == "int") {
    const bool packed = format.Text("format", "") == "pack-quantized";
    return packed ? FormOfPackedIntegers(weights) : FormOfCompressedIntegers(weights, format);
  }
  if (type == "float" && bits == 4) {
    const std::string strategy = weights.Text("strategy", "");
    if (strategy == "group") return OfGroups(QuantizedForm::Mxfp4(), weights);
    if (strategy == "tensor_group") return OfGroups(QuantizedForm::Nvfp4(), weights);
    return WhyNot(weights, "strategy", "'tensor_group' or 'group' of e2m1");
  }
  if (type != "float") return WhyNot(weights, "type", "'float' or 'int'");
  return bits == 8 ? FormOfCompressedFloats(weights) : WhyNot(weights, "num_bits", "8 or 4");
}

std::string ModelOptAlgorithm(const ConfigFields& config) {
  std::string algorithm = config.Text("quant_algo", "");
  std::ranges::transform(algorithm, algorithm.begin(), UpperCase);
  return algorithm;
}

StoredForm FormOfModelOpt(const ConfigFields& config) {
  const std::string algorithm = ModelOptAlgorithm(config);
  if (algorithm == "FP8") return {QuantizedForm{}};
  if (algorithm == "FP8_PER_CHANNEL_PER_TOKEN") return {QuantizedForm{.scales = QuantizedForm::Scales::kChannel}};
  if (algorithm == "FP8_PB_WO") return OfGroups(QuantizedForm{.scales = QuantizedForm::Scales::kBlock}, config);
  if (algorithm == "MXFP8") return OfGroups(QuantizedForm::Mxfp8(), config);
  if (algorithm == "NVFP4" || algorithm == "W4A16_NVFP4") return OfGroups(QuantizedForm::Nvfp4(), config);
  if (algorithm == "W4A8_NVFP4_FP8") return OfGroups(QuantizedForm::Nvfp4(kW4A8Block), config);
  if (algorithm == "MXFP4" || algorithm == "W4A8_MXFP4_FP8") return OfGroups(QuantizedForm::Mxfp4(), config);
  if (algorithm == "W8A8_SQ_PER_CHANNEL") {
    return {QuantizedForm{.scales = QuantizedForm::Scales::kChannel, .codes = DType::kI8}};
  }
  return WhyNot(config, "quant_algo",
                "'FP8', 'FP8_PER_CHANNEL_PER_TOKEN', 'FP8_PB_WO', 'MXFP8', 'MXFP4', 'NVFP4', 'W4A16_NVFP4', "
                "'W4A8_NVFP4_FP8', 'W4A8_MXFP4_FP8' or 'W8A8_SQ_PER_CHANNEL'");
}

StoredForm FormOf(const std::string& method, const ConfigFields& config) {
  if (method == "fp8") return FormOfFp8(config);
  if (method == "mxfp8") return FormOfMxfp8(config);
  if (method == "modelopt") return FormOfModelOpt(config);
  if (method == "mxfp4") return {QuantizedForm::Mxfp4InBlocks()};
  if (method == "fbgemm_fp8") return {QuantizedForm{.scales = QuantizedForm::Scales::kChannel}};
  return WhyNot(config, "quant_method", "'fp8', 'mxfp8', 'compressed-tensors', 'modelopt', 'mxfp4' or 'fbgemm_fp8'");
}

}  // namespace layercast
