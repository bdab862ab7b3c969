// What linear layers and stacked experts have in common: weights that a recipe applies to, and that checkpoints may
// hold quantized already. The base of both.
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

// A layer whose weights come in full precision, or, if config.json says how, as codes and scales. Scales are then
// parameters of their own, each behind its weight, and codes and scales are served as they come. Resource, as every
// Module.
class LAYERCAST_PUBLIC QuantizableLayer : public Module {
 public:
  // Sets what config.json says of the layer: whether a recipe applies to it, and in which quantized form checkpoints
  // may hold it. Without a form, `why_no_form` says which field has a value that is not known, or leaves the layer out.
  void SetQuantization(bool quantize, std::optional<QuantizedForm> form, std::string why_no_form = {});
  const std::optional<QuantizedForm>& quantized_form() const { return form_; }
  const std::string& why_no_form() const { return why_no_form_; }

  // Says whether the weights come in the quantized form from now on. Must not be called during a load.
  void TakeQuantized(bool quantized);
  bool takes_quantized() const { return takes_quantized_; }
  // Says whether the engine has, for each weight, a scale for the activations that the weight is multiplied with. It is
  // a parameter "input_scale", fp32 [1], positive, behind all others. A fused weight has one, the largest of its
  // parts'. A layer that no recipe applies to never has any. Scales that are not held are skipped. Must not be called
  // during a load.
  void HoldInputScales(bool hold);
  bool holds_input_scales() const { return holds_input_scales_; }
  // The name of the input scale of weight number `weight`: "w13_input_scale".
  std::string InputScaleName(std::uint32_t weight) const;

  // Why this rank's part of a weight in the layer's quantized form is not such a weight itself. Empty: it is one.
  // Either all ranks have a reason or none has; the text has this rank's numbers.
  virtual std::string WhyNotSliced() const { return {}; }

  // Modules of a checkpoint whose weights are one in memory, such as gate and up, in their order there.
  using FusedModules = std::vector<std::string>;
  // The checkpoint modules that make up a layer at `path`, apart from one of its own name: for each way in which
  // checkpoints name them, all of them. By default, there is one way, by the layer's shard names.
  virtual std::vector<std::vector<FusedModules>> CheckpointModules(std::string_view path) const;

  std::span<const SkipRule> skip_rules() const override { return skip_rules_; }

 protected:
  QuantizableLayer(std::string class_name, const LayerContext& context);
  DType dtype() const { return dtype_; }  // of weights in full precision
  // Adds a weight: a matrix, or a stack of them. Its name must end with "weight". All weights must be added before any
  // other parameter.
  void AddWeight(std::string name, Shape shape, ShardAxis axis);
  // How many rows and columns of the weight one element of a parameter stands for: those of a block if the parameter
  // holds scales of blocks, and those whose codes share an element if it holds codes. Value.
  struct Units {
    std::int64_t rows = 1, cols = 1;
  };
  Units UnitsOf(std::uint32_t index) const;
  bool IsScale(std::uint32_t index) const;        // of the weight's blocks, its rows or the whole weight
  bool IsGlobalScale(std::uint32_t index) const;  // the second scale, of the whole weight
  // How many parameters a weight and its scales are.
  std::uint32_t parameters_per_weight() const;
  bool IsInputScale(std::uint32_t index) const;
  // What checkpoints call scales of activations within this layer.
  virtual std::span<const std::string_view> input_scale_names() const;
  // The message that `what` ("rows of 'q_proj'") on this rank, `first` to `end` of `size`, is not whole blocks of
  // `block`.
  std::string NotWholeBlocks(const std::string& what, std::int64_t first, std::int64_t end, std::int64_t size,
                             std::int64_t block) const;

 private:
  Parameter ScaleOf(const Parameter& weight) const;
  Parameter GlobalScaleOf(const Parameter& weight) const;
  void SetSkipRules();

  DType dtype_;
  int tp_size_;
  bool quantize_;      // the family lets recipes apply
  bool takes_recipe_;  // the family does, and so does config.json
  std::uint32_t num_weights_ = 0;
  std::optional<QuantizedForm> form_;
  std::string why_no_form_;
  bool takes_quantized_ = false;
  bool holds_input_scales_ = false;
  std::vector<SkipRule> skip_rules_;
};

}  // namespace layercast
