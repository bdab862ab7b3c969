#include "engine_side/reload/quantized_checkpoint.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "engine_side/quant/dequantize.h"
#include "layercast/error.h"
#include "src/tensor/element.h"

namespace layercast {
namespace {

using Way = QuantizedLayer::Way;

constexpr std::string_view kWeight = ".weight";

bool HoldsCodes(const TensorSpec& spec) { return spec.dtype == DType::kF8E4M3 && spec.name.ends_with(kWeight); }

void TakeAllInFullPrecision(Module& module) {
  if (auto* layer = dynamic_cast<LinearLayer*>(&module)) layer->TakeQuantized(false);
  for (const auto& [name, child] : module.children()) TakeAllInFullPrecision(*child);
}

// Gathers the parts of each layer.
class LayerFinder {
 public:
  LayerFinder(Module& model, std::span<const TensorSpec> specs) : model_(model), specs_(specs) {
    for (std::uint32_t i = 0; i < specs.size(); ++i) index_of_.emplace(specs[i].name, i);
  }

  std::vector<QuantizedLayer> Find() {
    for (std::uint32_t i = 0; i < specs_.size(); ++i) {
      if (HoldsCodes(specs_[i])) AddPart(i);
    }
    return std::move(layers_);
  }

 private:
  void AddPart(std::uint32_t weight) {
    const TensorSpec& spec = specs_[weight];
    Resolution to;
    try {
      to = model_.Resolve({spec.name, DType::kBF16, spec.shape});  // where its weight would go
    } catch (const Error&) {
      return;  // the plan says what is wrong with it, and with all others
    }
    if (to.owner == nullptr) return;
    // The owner is a part of this tree, which is not const here.
    auto* layer = dynamic_cast<LinearLayer*>(const_cast<Module*>(to.owner));
    if (layer == nullptr || !layer->quantized_form()) {
      throw Error(ErrorCode::kInvalidArgument, "layer " + to.owner_path + ": '" + spec.name + "' is " + Describe(spec) +
                                                   ", but config.json gives this layer no quantized form");
    }
    const std::string scale =
        spec.name.substr(0, spec.name.size() - kWeight.size() + 1) + layer->quantized_form()->checkpoint_scale;
    const auto found = index_of_.find(scale);
    if (found == index_of_.end()) {
      throw Error(ErrorCode::kInvalidArgument, "layer " + to.owner_path + ": '" + spec.name + "' is " + Describe(spec) +
                                                   ", and its scales, '" + scale + "', are missing");
    }
    const auto [entry, first] = layer_of_.try_emplace(layer, layers_.size());
    if (first) layers_.push_back({.layer = layer, .path = to.owner_path, .way = Way::kAsTheyAre, .parts = {}});
    layers_[entry->second].parts.push_back({weight, found->second});
  }

  Module& model_;
  const std::span<const TensorSpec> specs_;
  std::unordered_map<std::string_view, std::uint32_t> index_of_;
  std::unordered_map<const LinearLayer*, std::size_t> layer_of_;
  std::vector<QuantizedLayer> layers_;
};

// Empty: its codes and scales are what the recipe makes.
std::string WhyNotAsTheyAre(const QuantizedLayer& layer, const Recipe& recipe) {
  const QuantizedForm& form = *layer.layer->quantized_form();
  if (form.recipe() == recipe.name()) return layer.layer->WhyNotSliced();
  const std::string blocks = std::to_string(form.block_rows) + " x " + std::to_string(form.block_cols);
  return "expected weights for " + std::string(recipe.name()) + ", got codes of " +
         (form.recipe().empty() ? "blocks of " + blocks : std::string(form.recipe()));
}

[[noreturn]] void RefuseAll(const std::vector<std::string>& problems) {
  constexpr std::size_t kMost = 20;
  std::string message = "these layers are quantized already and cannot be served as they are:";
  for (std::size_t i = 0; i < std::min(problems.size(), kMost); ++i) message += "\n  " + problems[i];
  if (problems.size() > kMost) message += "\n  and " + std::to_string(problems.size() - kMost) + " more";
  throw Error(
      ErrorCode::kInvalidArgument,
      message + "\na checkpoint on disk can be dequantized and quantized anew, if that is asked for (requantize)");
}

bool HasOneScaleEach(const QuantizedLayer& layer) {
  return layer.layer->quantized_form()->scales == QuantizedForm::Scales::kTensor && layer.parts.size() > 1;
}

// The order of the fused weight: that in which the layer names its shards.
void OrderParts(QuantizedLayer& layer, std::span<const TensorSpec> specs) {
  const auto place = [&](const QuantizedLayer::Part& part) {
    const std::string& name = specs[part.weight].name;
    const std::string module = name.substr(0, name.size() - kWeight.size());
    const std::span<const ShardName> shards = layer.layer->shard_names();
    return std::ranges::find_if(shards,
                                [&](const ShardName& shard) {
                                  return module.ends_with("." + std::string(shard.checkpoint_name)) ||
                                         module == shard.checkpoint_name;
                                }) -
           shards.begin();
  };
  std::ranges::stable_sort(layer.parts, {}, place);
}

}  // namespace

std::vector<QuantizedLayer> TakeQuantizedLayers(Module& model, std::span<const TensorSpec> specs, const Recipe& recipe,
                                                bool requantize) {
  TakeAllInFullPrecision(model);
  std::vector<QuantizedLayer> layers = LayerFinder(model, specs).Find();
  std::vector<std::string> problems;
  for (QuantizedLayer& layer : layers) {
    const std::string why = WhyNotAsTheyAre(layer, recipe);
    if (!why.empty()) problems.push_back("layer " + layer.path + ": " + why);
    layer.way = !why.empty() ? Way::kDequantize : HasOneScaleEach(layer) ? Way::kToLargestScale : Way::kAsTheyAre;
    OrderParts(layer, specs);
  }
  if (!problems.empty() && !requantize) RefuseAll(problems);
  for (const QuantizedLayer& layer : layers) layer.layer->TakeQuantized(layer.way != Way::kDequantize);
  return layers;
}

QuantizedCheckpoint::QuantizedCheckpoint(const Checkpoint& checkpoint, Module& model, const Recipe& recipe,
                                         bool requantize, WorkerPool& pool)
    : checkpoint_(checkpoint),
      pool_(pool),
      layers_(TakeQuantizedLayers(model, checkpoint.specs(), recipe, requantize)) {
  std::vector<bool> replaced(checkpoint.specs().size());
  for (std::size_t i = 0; i < layers_.size(); ++i) AddMade(layers_[i], static_cast<std::int64_t>(i), replaced);
  for (std::uint32_t i = 0; i < replaced.size(); ++i) {
    if (replaced[i]) continue;
    specs_.push_back(checkpoint.specs()[i]);
    origins_.push_back({-1, i});
  }
}

// The tensors that stand for the layer's own.
void QuantizedCheckpoint::AddMade(const QuantizedLayer& layer, std::int64_t index, std::vector<bool>& replaced) {
  if (layer.way == Way::kAsTheyAre) return;
  for (const QuantizedLayer::Part& part : layer.parts) replaced[part.weight] = replaced[part.scale] = true;
  const DType dtype = layer.layer->parameters()[0].spec.dtype;
  const auto add = [&](TensorSpec spec, std::uint32_t part) {
    specs_.push_back(std::move(spec));
    origins_.push_back({index, part});
  };
  if (layer.way == Way::kDequantize) {
    for (std::uint32_t i = 0; i < layer.parts.size(); ++i) {
      const TensorSpec& weight = checkpoint_.specs()[layer.parts[i].weight];
      add({weight.name, dtype, weight.shape}, i);
    }
    return;
  }
  TensorSpec fused = checkpoint_.specs()[layer.parts[0].weight];
  fused.name = layer.path + std::string(kWeight);
  for (std::size_t i = 1; i < layer.parts.size(); ++i) {
    fused.shape.at(0) += checkpoint_.specs()[layer.parts[i].weight].shape.at(0);
  }
  add(std::move(fused), 0);
  add({layer.path + "." + std::string(layer.layer->quantized_form()->kernel_scale()), DType::kF32, {1}}, 1);
}

std::unique_ptr<WeightsIterator> QuantizedCheckpoint::Weights(std::vector<std::uint32_t> order) const {
  return MakeWeightsIterator([this, order = std::move(order), next = std::size_t{0}]() mutable {
    return next < order.size() ? std::optional(Make(order[next++])) : std::nullopt;
  });
}

NamedTensor QuantizedCheckpoint::Make(std::uint32_t index) const {
  const Origin& origin = origins_[index];
  if (origin.layer < 0) return checkpoint_.Tensor(std::size_t{origin.index});
  const QuantizedLayer& layer = layers_[static_cast<std::size_t>(origin.layer)];
  const TensorSpec& spec = specs_[index];
  const auto bytes = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(spec.num_bytes()));
  if (layer.way == Way::kDequantize) {
    Dequantized(layer, origin.index, bytes->data());
  } else {
    AtLargestScale(layer, origin.index == 1, bytes->data());
  }
  return {spec.name, {spec.dtype, spec.shape, bytes->data(), {}}, bytes};
}

void QuantizedCheckpoint::Dequantized(const QuantizedLayer& layer, std::uint32_t part, std::byte* values) const {
  const NamedTensor codes = checkpoint_.Tensor(std::size_t{layer.parts[part].weight});
  const QuantizedForm& form = *layer.layer->quantized_form();
  Fp8Weight weight{.codes = reinterpret_cast<const std::uint8_t*>(codes.tensor.data),
                   .rows = codes.tensor.shape.at(0),
                   .cols = codes.tensor.shape.at(1),
                   .scales = ScalesOf(layer.parts[part]),
                   .block_rows = form.block_rows,
                   .block_cols = form.block_cols};
  if (form.scales != QuantizedForm::Scales::kBlock) {
    weight.block_rows = form.scales == QuantizedForm::Scales::kTensor ? weight.rows : 1;
    weight.block_cols = weight.cols;
  }
  const Shape expected = form.ScaleShape(weight.rows, weight.cols);
  const TensorSpec& scale = checkpoint_.specs()[layer.parts[part].scale];
  if (scale.num_elements() != NumElements(expected)) {
    throw Error(ErrorCode::kInvalidArgument, "layer " + layer.path + ": '" + scale.name + "' expected " +
                                                 Describe(scale.dtype, expected) + ", got " + Describe(scale));
  }
  Dequantize(weight, layer.layer->parameters()[0].spec.dtype, values, pool_);
}

// All parts with the largest of their scales, one after another; or that scale.
void QuantizedCheckpoint::AtLargestScale(const QuantizedLayer& layer, bool is_scale, std::byte* bytes) const {
  float largest = 0.0F;
  for (const QuantizedLayer::Part& part : layer.parts) largest = std::max(largest, ScalesOf(part).at(0));
  if (is_scale) {
    std::memcpy(bytes, &largest, sizeof(largest));
    return;
  }
  for (const QuantizedLayer::Part& part : layer.parts) {
    const NamedTensor codes = checkpoint_.Tensor(std::size_t{part.weight});
    const auto count = static_cast<std::size_t>(codes.tensor.num_bytes());
    Rescale(reinterpret_cast<const std::uint8_t*>(codes.tensor.data), count, ScalesOf(part).at(0), largest,
            reinterpret_cast<std::uint8_t*>(bytes));
    bytes += count;
  }
}

std::vector<float> QuantizedCheckpoint::ScalesOf(const QuantizedLayer::Part& part) const {
  const NamedTensor tensor = checkpoint_.Tensor(std::size_t{part.scale});
  std::vector<float> scales;
  for (std::int64_t i = 0; i < NumElements(tensor.tensor.shape); ++i) {
    scales.push_back(static_cast<float>(ElementValue(tensor.tensor.dtype, tensor.tensor.data, i)));
  }
  return scales;
}

}  // namespace layercast
