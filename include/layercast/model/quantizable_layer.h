// What linear layers and stacked experts have in common: weights that a recipe applies to, which checkpoints may hold
// quantized already.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "layercast/export.h"
#include "layercast/model/layer_context.h"
#include "layercast/model/module.h"
#include "layercast/model/quantized_form.h"

namespace layercast {

// Weights come in full precision, or, where config.json says how, as codes and scales, which are then parameters of
// their own, each weight's scales behind it, and served as they are.
class LAYERCAST_PUBLIC QuantizableLayer : public Module {
 public:
  // What config.json says: whether a recipe applies to the layer, and how checkpoints may hold it; where that is no
  // form, why: which of its fields is none that is known, or leaves the layer out.
  void SetQuantization(bool quantize, std::optional<QuantizedForm> form, std::string why_no_form = {});
  const std::optional<QuantizedForm>& quantized_form() const { return form_; }
  const std::string& why_no_form() const { return why_no_form_; }

  // Whether the weights come in that form from now on. Not while somebody is loading.
  void TakeQuantized(bool quantized);
  bool takes_quantized() const { return takes_quantized_; }
  // Whether the engine has a scale for the activations that each weight is multiplied with: "input_scale", fp32 [1],
  // positive, behind all other parameters; of a fused layer one, the largest of its parts'. Layers that no recipe
  // applies to never have one. What is not held is skipped. Not while somebody is loading.
  void HoldInputScales(bool hold);
  bool holds_input_scales() const { return holds_input_scales_; }
  // Of weight number `weight`: "w13_input_scale".
  std::string InputScaleName(std::uint32_t weight) const;

  // Why a rank's part of a weight in that form is no weight in that form itself: the same on all ranks or none, with
  // this one's numbers. Empty: it is one.
  virtual std::string WhyNotSliced() const { return {}; }

  // Modules of a checkpoint whose weights are one, in its order: of gate and up.
  using FusedModules = std::vector<std::string>;
  // The modules that a layer at `path` is to checkpoints, beside itself: all of them, for each way in which they are
  // named. The default: its shard names.
  virtual std::vector<std::vector<FusedModules>> CheckpointModules(std::string_view path) const;

  std::span<const SkipRule> skip_rules() const override { return skip_rules_; }

 protected:
  QuantizableLayer(std::string class_name, const LayerContext& context);
  DType dtype() const { return dtype_; }  // of weights in full precision
  // A matrix, or a stack of them. Its name ends with "weight". Before any parameter that is none.
  void AddWeight(std::string name, Shape shape, ShardAxis axis);
  // How many rows and columns of its weight are one of parameter `index`: a block, where it holds the scales of blocks;
  // those whose codes share a byte.
  struct Units {
    std::int64_t rows = 1, cols = 1;
  };
  Units UnitsOf(std::uint32_t index) const;
  bool IsScale(std::uint32_t index) const;        // of blocks, rows or the whole
  bool IsGlobalScale(std::uint32_t index) const;  // the second, of the whole
  // A weight and its scales.
  std::uint32_t parameters_per_weight() const;
  bool IsInputScale(std::uint32_t index) const;
  // What checkpoints call scales of activations within this layer.
  virtual std::span<const std::string_view> input_scale_names() const;
  // `what` ("rows of 'q_proj'") from `first` to `end` of `size` are no whole blocks of `block` on this rank.
  std::string NotWholeBlocks(const std::string& what, std::int64_t first, std::int64_t end, std::int64_t size,
                             std::int64_t block) const;

 private:
  Parameter ScaleOf(const Parameter& weight) const;
  Parameter GlobalScaleOf(const Parameter& weight) const;
  void SetSkipRules();

  DType dtype_;
  int tp_size_;
  bool quantize_;      // as the family builds it
  bool takes_recipe_;  // and config.json says
  std::uint32_t num_weights_ = 0;
  std::optional<QuantizedForm> form_;
  std::string why_no_form_;
  bool takes_quantized_ = false;
  bool holds_input_scales_ = false;
  std::vector<SkipRule> skip_rules_;
};

}  // namespace layercast
