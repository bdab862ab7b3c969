// layercast models: the families of this build, what each is made of, which recipes its weights take, and whether the
// built-in engine computes it. No list is kept for this: each family's tree is built and asked.
#include <algorithm>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cli/arguments/subcommand.h"
#include "engine_side/engine/cpu/cpu_decoder.h"
#include "engine_side/quant/kernel_tensors.h"
#include "engine_side/quant/recipe.h"
#include "engine_side/quant/recipes/recipe_table.h"
#include "layercast/model/registry.h"

namespace layercast::cli {
namespace {

// A small model of any family. Each family reads the fields that it knows, and has its own defaults for the rest.
ModelConfig SampleOf(const std::string& architecture) {
  Json fields = {{"architectures", {architecture}},
                 {"dtype", "bfloat16"},
                 {"vocab_size", 256},
                 {"hidden_size", 256},
                 {"intermediate_size", 512},
                 {"num_hidden_layers", 2},
                 {"num_attention_heads", 4},
                 {"num_key_value_heads", 2},
                 {"head_dim", 64},
                 {"num_experts", 4},
                 {"num_experts_per_tok", 2},
                 {"moe_intermediate_size", 256},
                 {"n_group", 1},  // there are too few experts for the groups that some families have by default
                 {"topk_group", 1},
                 {"first_k_dense_replace", 0},  // and too few layers
                 {"shared_expert_intermediate_size", 256},
                 {"q_lora_rank", 256},
                 {"kv_lora_rank", 256},
                 {"qk_nope_head_dim", 64},
                 {"qk_rope_head_dim", 64},
                 {"v_head_dim", 64}};
  if (architecture == "NemotronHForCausalLM") {  // it has only the layers that are listed
    fields.update({{"hybrid_override_pattern", "M-*"}});
  }
  if (architecture.starts_with("Qwen3Next") || architecture.starts_with("Qwen3_5")) {  // one layer of each kind
    fields.update({{"layer_types", {"linear_attention", "full_attention"}}});
  }
  return ModelConfig::Parse(fields.dump());
}

void Visit(const Module& module, const std::string& path, const auto& visit) {
  visit(module, path);
  for (const auto& [name, child] : module.children()) Visit(*child, path.empty() ? name : path + "." + name, visit);
}

// The classes of the modules that have parameters, or that share another module's.
std::set<std::string> LayersOf(const Module& tree) {
  std::set<std::string> layers;
  Visit(tree, "", [&](const Module& module, const std::string&) {
    if (!module.parameters().empty() || !module.tied_to().empty()) layers.insert(module.class_name());
  });
  return layers;
}

bool Holds(const Recipe& recipe, const Module& tree) {
  bool holds = true;
  Visit(tree, "", [&](const Module& module, const std::string&) {
    for (const Parameter& parameter : module.parameters()) {
      if (!parameter.quantize) continue;
      try {
        (void)KernelTensorsOf(parameter.spec, recipe);
      } catch (const Error&) {
        holds = false;
      }
    }
  });
  return holds;
}

// Why the built-in engine does not compute the tree; empty if it does.
std::string WhyNotComputed(const Module& tree) {
  std::deque<std::vector<std::byte>> memory;
  std::vector<CapturedBuffer> buffers;
  Visit(tree, "", [&](const Module& module, const std::string& path) {
    const auto add = [&](const TensorSpec& spec) {
      memory.emplace_back(static_cast<std::size_t>(spec.num_bytes()));
      buffers.push_back({path + "." + spec.name, memory.back().data(), spec.dtype, spec.shape, {}, {}});
    };
    for (const Parameter& parameter : module.parameters()) add(parameter.spec);
    for (const DerivedTensor& derived : module.derived()) add(derived.spec);
  });
  const auto no_rope = [](const RotaryEmbedding& embedding) {
    return Rope{std::vector<float>(static_cast<std::size_t>(embedding.dim / 2)), 1.0F};
  };
  SingleRank alone;
  try {
    const Decoder decoder(tree, {}, buffers, {alone}, no_rope);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

std::string Joined(const auto& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

class Models final : public Subcommand {
 public:
  const char* name() const override { return "models"; }
  const char* description() const override {
    return "Lists the model families of this build, as a Markdown table or --json";
  }
  void Declare(CLI::App&) override {}

  void Run(Output& output) override {
    const ModelRegistry registry = ModelRegistry::Builtin();
    Json families = Json::array();
    std::string text = "| `architectures` | layers | recipes | forward | limits |\n|---|---|---|---|---|\n";
    for (const std::string& architecture : registry.architectures()) {
      const std::unique_ptr<Module> tree = registry.Build(SampleOf(architecture), {});
      std::vector<std::string> recipes;
      for (const std::string& recipe : KnownRecipes()) {
        if (Holds(*MakeRecipe(recipe), *tree)) recipes.push_back(recipe);
      }
      const std::set<std::string> layers = LayersOf(*tree);
      const std::string why_not = WhyNotComputed(*tree);
      const std::string& limits = registry.limits(architecture);
      families.push_back({{"architecture", architecture},
                          {"layers", layers},
                          {"recipes", recipes},
                          {"forward", why_not.empty()},
                          {"limits", limits}});
      text += "| `" + architecture + "` | " + Joined(layers) + " | " +
              (recipes.size() == KnownRecipes().size() ? "all" : Joined(recipes)) + " | " +
              (why_not.empty() ? "yes" : "no: " + why_not) + " | " + limits + " |\n";
    }
    output.Print({{"families", families}, {"recipes", KnownRecipes()}}, text);
  }
};

}  // namespace

std::unique_ptr<Subcommand> MakeModels() { return std::make_unique<Models>(); }

}  // namespace layercast::cli
