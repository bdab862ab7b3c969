// Load plans and schedules of many tensors. The goals: at most 100 ms for 60 000, and linear in their number
// (`ns_per_tensor` stays the same); at most 150 ms for 60 layers of 512 experts, 92 160 tensors, split or spread over
// ranks. The model is a Qwen3 of thousands of small layers, for rank 3 of 8. The yardstick, measured in the same run,
// is reading and indexing the same names in a hash table, which the machine's memory bounds.
#include <benchmark/benchmark.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine_side/plan/piece.h"
#include "layercast/model/moe.h"
#include "layercast/model/registry.h"

namespace layercast::bench {
namespace {

constexpr int kTensorsPerLayer = 11;
constexpr ParallelConfig kRank{3, 8};

ModelConfig ConfigOf(std::int64_t tensors) {
  const std::int64_t layers = tensors / kTensorsPerLayer;
  return ModelConfig::Parse(R"({"architectures": ["Qwen3ForCausalLM"], "vocab_size": 1000, "hidden_size": 1024,
    "intermediate_size": 3072, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
    "torch_dtype": "bfloat16", "num_hidden_layers": )" +
                            std::to_string(layers) + "}");
}

Manifest ManifestOf(const ModelConfig& config) {
  std::vector<TensorSpec> specs;
  const auto add = [&](std::string name, Shape shape) {
    specs.push_back({std::move(name), config.dtype, std::move(shape)});
  };
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t heads = config.num_attention_heads * config.head_dim;
  const std::int64_t kv_heads = config.num_key_value_heads * config.head_dim;
  add("model.embed_tokens.weight", {config.vocab_size, hidden});
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    add(layer + "input_layernorm.weight", {hidden});
    add(layer + "mlp.down_proj.weight", {hidden, config.intermediate_size});
    add(layer + "mlp.gate_proj.weight", {config.intermediate_size, hidden});
    add(layer + "mlp.up_proj.weight", {config.intermediate_size, hidden});
    add(layer + "post_attention_layernorm.weight", {hidden});
    add(layer + "self_attn.k_norm.weight", {config.head_dim});
    add(layer + "self_attn.k_proj.weight", {kv_heads, hidden});
    add(layer + "self_attn.o_proj.weight", {hidden, heads});
    add(layer + "self_attn.q_norm.weight", {config.head_dim});
    add(layer + "self_attn.q_proj.weight", {heads, hidden});
    add(layer + "self_attn.v_proj.weight", {kv_heads, hidden});
  }
  add("model.norm.weight", {hidden});
  add("lm_head.weight", {config.vocab_size, hidden});
  return Manifest::OfSpecs("bench", 0, specs);
}

// 60 layers of 512 experts, and nothing else.
constexpr std::int64_t kMoeLayers = 60;
const ExpertOptions kExperts{.num_experts = 512, .hidden_size = 2048, .intermediate_size = 512};

class Group final : public Module {
 public:
  using Module::AddChild;
  using Module::Module;
};

std::unique_ptr<Module> ExpertModel(const ParallelConfig& parallel) {
  auto layers = std::make_unique<Group>("Layers");
  for (std::int64_t i = 0; i < kMoeLayers; ++i) {
    auto mlp = std::make_unique<Group>("Mlp");
    mlp->AddChild("experts", std::make_unique<FusedMoE>(LayerContext{.parallel = parallel}, kExperts));
    auto layer = std::make_unique<Group>("Layer");
    layer->AddChild("mlp", std::move(mlp));
    layers->AddChild(std::to_string(i), std::move(layer));
  }
  auto model = std::make_unique<Group>("Decoder");
  model->AddChild("layers", std::move(layers));
  auto root = std::make_unique<Group>("Model");
  root->AddChild("model", std::move(model));
  return root;
}

Manifest ExpertManifest() {
  std::vector<TensorSpec> specs;
  for (std::int64_t i = 0; i < kMoeLayers; ++i) {
    for (std::int64_t e = 0; e < kExperts.num_experts; ++e) {
      const std::string expert = "model.layers." + std::to_string(i) + ".mlp.experts." + std::to_string(e) + ".";
      const auto add = [&](const char* name, std::int64_t rows, std::int64_t cols) {
        specs.push_back({expert + name + ".weight", DType::kBF16, {rows, cols}});
      };
      add("down_proj", kExperts.hidden_size, kExperts.intermediate_size);
      add("gate_proj", kExperts.intermediate_size, kExperts.hidden_size);
      add("up_proj", kExperts.intermediate_size, kExperts.hidden_size);
    }
  }
  return Manifest::OfSpecs("bench", 0, specs);
}

void Report(benchmark::State& state, const Manifest& manifest) {
  const auto tensors = static_cast<double>(manifest.size());
  state.counters["tensors"] = tensors;
  state.counters["ns_per_tensor"] = benchmark::Counter(tensors * static_cast<double>(state.iterations()) * 1e-9,
                                                       benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void IndexNames(benchmark::State& state) {
  const Manifest manifest = ManifestOf(ConfigOf(state.range(0)));
  for (auto _ : state) {
    std::unordered_map<std::string, std::uint32_t> index;
    for (const auto& entry : manifest.entries()) index[entry.spec.name] = entry.spec.shape.size() > 1 ? 1 : 0;
    std::uint32_t found = 0;
    for (const auto& entry : manifest.entries()) found += index.at(entry.spec.name);
    benchmark::DoNotOptimize(found);
  }
  Report(state, manifest);
}

void BuildPlan(benchmark::State& state) {
  const ModelConfig config = ConfigOf(state.range(0));
  const auto model = ModelRegistry::Builtin().Build(config, kRank);
  const Manifest manifest = ManifestOf(config);
  for (auto _ : state) {
    LoadPlan plan = LoadPlan::Build(*model, manifest);
    benchmark::DoNotOptimize(plan);
    state.PauseTiming();  // an engine keeps the plan, so destroying it is not measured
    plan = LoadPlan();
    state.ResumeTiming();
  }
  Report(state, manifest);
}

void BuildExpertPlan(benchmark::State& state, const ParallelConfig& parallel) {
  const auto model = ExpertModel(parallel);
  const Manifest manifest = ExpertManifest();
  for (auto _ : state) {
    LoadPlan plan = LoadPlan::Build(*model, manifest);
    benchmark::DoNotOptimize(plan);
    state.PauseTiming();
    plan = LoadPlan();
    state.ResumeTiming();
  }
  Report(state, manifest);
}

void BuildSchedule(benchmark::State& state) {
  const ModelConfig config = ConfigOf(state.range(0));
  const auto model = ModelRegistry::Builtin().Build(config, kRank);
  const Manifest manifest = ManifestOf(config);
  const LoadPlan plan = LoadPlan::Build(*model, manifest);
  for (auto _ : state) {
    const PlannedSchedule made = MakeSchedule(plan, manifest, {.row_multiple = 128});
    benchmark::DoNotOptimize(made.schedule.digest());
  }
  Report(state, manifest);
}

BENCHMARK(IndexNames)->Arg(60000)->Unit(benchmark::kMillisecond);
BENCHMARK(BuildPlan)->Arg(7500)->Arg(15000)->Arg(30000)->Arg(60000)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BuildExpertPlan, split, kRank)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BuildExpertPlan, spread, {.tp_rank = 3, .tp_size = 8, .ep_rank = 3, .ep_size = 8})
    ->Unit(benchmark::kMillisecond);
BENCHMARK(BuildSchedule)->Arg(7500)->Arg(60000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace layercast::bench

BENCHMARK_MAIN();
