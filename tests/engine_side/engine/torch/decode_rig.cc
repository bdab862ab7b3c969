#include "tests/engine_side/engine/torch/decode_rig.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <span>
#include <utility>

#include "engine_side/engine/blocks/decoder_description.h"
#include "engine_side/engine/torch/tensors/torch_type.h"
#include "engine_side/quant/recipes/recipe_table.h"
#include "layercast/model/registry.h"

namespace layercast::testing {
namespace {

std::string ConfigOf(DecodeRig::Model model, const std::string& dtype) {
  static constexpr const char* kDense =
      R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 50, "hidden_size": 32,
      "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
      "head_dim": 8, "max_position_embeddings": 64, "tie_word_embeddings": true)";
  static constexpr const char* kHybrid =
      R"({"architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "vocab_size": 50, "hidden_size": 32,
      "layers_block_type": ["linear_attention", "moe", "full_attention", "linear_attention"], "mamba_num_heads": 4,
      "mamba_head_dim": 12, "ssm_state_size": 6, "n_groups": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
      "head_dim": 8, "intermediate_size": 48, "n_routed_experts": 4, "num_experts_per_tok": 2,
      "moe_intermediate_size": 24, "moe_shared_expert_intermediate_size": 16, "max_position_embeddings": 64)";
  return std::string(model == DecodeRig::Model::kDense ? kDense : kHybrid) + R"(, "dtype": ")" + dtype + "\"}";
}

// Norms and scales lie around 1 and 0.01, so that every weight is felt.
at::Tensor RandomValues(const CapturedBuffer& buffer, std::mt19937& random) {
  const bool scale = buffer.name.find("_scale") != std::string::npos;
  const float center = scale ? 0.01F : buffer.shape.size() == 1 ? 1.0F : 0.0F;
  const float width = scale ? 0.005F : BitsPerElement(buffer.dtype) == 8 ? 120.0F : 0.5F;
  std::uniform_real_distribution<float> spread(center - width, center + width);
  const at::Tensor values = at::empty(buffer.shape, at::kFloat);
  std::generate_n(values.mutable_data_ptr<float>(), values.numel(), [&] { return spread(random); });
  return values.to(*TorchTypeOf(buffer.dtype));
}

// What derives from a layer's parameters must be that of them.
void MakeDecays(const std::vector<TensorSpec>& specs, std::vector<at::Tensor>& memory) {
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (!specs[i].name.ends_with(".A")) continue;
    const auto log = std::ranges::find(specs, specs[i].name + "_log", &TensorSpec::name);
    memory[i] = -memory.at(static_cast<std::size_t>(log - specs.begin())).to(at::kDouble).exp().to(at::kFloat);
  }
}

// Rows are in the order of their positions: of one position there is one of each slot.
std::size_t EndOfStep(const std::vector<DecodeRow>& rows, std::size_t begin, bool of_one_position) {
  std::size_t end = begin;
  while (end < rows.size() && end - begin < static_cast<std::size_t>(DecodeRig::shape().rows) &&
         (!of_one_position || rows[end].position == rows[begin].position)) {
    ++end;
  }
  return end;
}

}  // namespace

DecodeRig::DecodeRig(const std::string& recipe, const std::string& dtype, Model model)
    : config_(ModelConfig::Parse(std::string_view(ConfigOf(model, dtype)))),
      tree_(ModelRegistry::Builtin().Build(config_, {})),
      adapters_(AdapterTermsOf(*tree_), {.slots = 3, .max_rank = 6, .dtype = AsDecoder(*tree_).dtype()}),
      engine_(std::make_unique<Engine>(*tree_, ParallelConfig(), *MakeRecipe(recipe), zeros_, Peers{collective_},
                                       &adapters_.slots())),
      receiver_(std::make_unique<Receiver>(ModelRegistry::Builtin().Build(config_, {}), ParallelConfig(),
                                           QuantizationConfig{.recipe = recipe}, engine_->Capture())) {}

const DecodeRig::Sequences& DecodeRig::sequences() {
  static const Sequences kSequences = {{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5}, {49}, {27, 18, 28, 18, 28, 45}};
  return kSequences;
}

StepShape DecodeRig::shape() { return {.rows = 5, .slots = 3, .max_tokens = 16}; }

void DecodeRig::Reload(std::uint64_t seed) {
  std::mt19937 random(static_cast<std::mt19937::result_type>(seed));
  std::vector<at::Tensor> memory;
  std::vector<NamedTensor> tensors;
  std::vector<TensorSpec> specs;
  for (const CapturedBuffer& buffer : receiver_->captured().buffers()) {
    memory.push_back(RandomValues(buffer, random));
    specs.push_back({buffer.name, buffer.dtype, buffer.shape});
  }
  MakeDecays(specs, memory);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const auto* data = static_cast<const std::byte*>(memory[i].const_data_ptr());
    tensors.push_back({.name = specs[i].name,
                       .tensor = {.dtype = specs[i].dtype, .shape = specs[i].shape, .data = data, .device = {}},
                       .owner = nullptr});
  }
  receiver_->ReloadWeights(FromIterator(MakeWeightsIterator(std::move(tensors)), std::move(specs), false));
}

std::vector<float> DecodeRig::DecoderLogits(const std::vector<std::int32_t>& slots) {
  engine_->DropAll();
  std::vector<float> all;
  for (std::size_t i = 0; i < sequences().size(); ++i) {
    const SequenceStep step{i, sequences()[i], true, slots[i]};
    const Logits logits = engine_->Forward({&step, 1});
    all.insert(all.end(), logits.values.begin(), logits.values.end());
  }
  return all;
}

std::vector<float> GraphLogits(DecodeGraph& graph, const std::vector<std::int32_t>& slots) {
  return LogitsOfSteps([&](std::span<const DecodeRow> rows) { return graph.Run(rows); }, graph.is_recurrent(), slots);
}

std::vector<float> LogitsOfSteps(const std::function<Logits(std::span<const DecodeRow>)>& run, bool of_one_position,
                                 const std::vector<std::int32_t>& slots) {
  std::vector<DecodeRow> rows;
  for (std::size_t i = 0; i < DecodeRig::sequences().size(); ++i) {
    const auto& tokens = DecodeRig::sequences()[i];
    for (std::size_t position = 0; position < tokens.size(); ++position) {
      rows.push_back({.slot = static_cast<std::int64_t>(i),
                      .position = static_cast<std::int64_t>(position),
                      .token = tokens[position],
                      .adapter = slots[i]});
    }
  }
  std::ranges::stable_sort(rows, {}, &DecodeRow::position);
  std::vector<std::vector<float>> of_sequence(DecodeRig::sequences().size());
  for (std::size_t begin = 0, end = 0; begin < rows.size(); begin = end) {
    end = EndOfStep(rows, begin, of_one_position);
    const auto step = std::span<const DecodeRow>(rows).subspan(begin, end - begin);
    const Logits logits = run(step);
    for (std::size_t r = 0; r < step.size(); ++r) {
      auto& to = of_sequence[static_cast<std::size_t>(step[r].slot)];
      to.insert(to.end(), logits.row(r).begin(), logits.row(r).end());
    }
  }
  std::vector<float> all;
  for (const auto& logits : of_sequence) all.insert(all.end(), logits.begin(), logits.end());
  return all;
}

float RelativeDifference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return std::numeric_limits<float>::infinity();
  float worst = 0.0F;
  float largest = 0.0F;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const float difference = std::abs(a[i] - b[i]);
    if (std::isnan(difference)) return difference;
    worst = std::max(worst, difference);
    largest = std::max(largest, std::abs(b[i]));
  }
  return worst / largest;
}

}  // namespace layercast::testing
