#include "tests/support/reload/rig.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "engine_side/quant/kernel_tensors.h"
#include "engine_side/quant/recipes/recipe_table.h"
#include "engine_side/quant/reference.h"
#include "engine_side/reload/layout/amax_requests.h"
#include "layercast/error.h"
#include "layercast/model/moe.h"
#include "layercast/model/norm.h"
#include "layercast/model/registry.h"
#include "src/tensor/cast.h"
#include "src/tensor/manifest/manifest_entry.h"
#include "tests/support/tree.h"

namespace layercast::testing {
namespace {

constexpr std::byte kCanary{0x5C};
constexpr std::size_t kGap = 64;

std::string Config(const RigOptions& options) {
  return R"({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 128, "intermediate_size": 256,
             "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 32, "rms_norm_eps": 1e-6,
             "max_position_embeddings": 64, "rope_theta": 10000.0, "hidden_act": "silu", "num_hidden_layers": )" +
         std::to_string(options.layers) + ", \"vocab_size\": " + std::to_string(options.vocab) +
         ", \"tie_word_embeddings\": " + (options.tied ? "true" : "false") + ", \"torch_dtype\": \"" +
         (options.dtype == DType::kBF16  ? "bfloat16"
          : options.dtype == DType::kF16 ? "float16"
                                         : "float32") +
         "\"}";
}

constexpr ExpertSizes kExperts{.experts = 5, .hidden = 128, .intermediate = 256, .bias = true};

std::unique_ptr<Module> ExpertModel(const RigOptions& options) {
  const LayerContext context{options.parallel, options.dtype, true};
  const bool interleaved = options.experts == ExpertForm::kInterleaved;
  auto mlp = std::make_unique<Tree>("Mlp");
  mlp->Add("gate", std::make_unique<ExpertRouter>(context, kExperts.hidden, kExperts.experts));
  auto experts = std::make_unique<FusedMoE>(context, ExpertOptions{.num_experts = kExperts.experts,
                                                                   .hidden_size = kExperts.hidden,
                                                                   .intermediate_size = kExperts.intermediate,
                                                                   .bias = kExperts.bias,
                                                                   .transposed = IsTransposed(*options.experts),
                                                                   .interleaved = interleaved});
  if (interleaved && options.recipe == "mxfp4")
    experts->SetQuantization(true, QuantizedForm::Mxfp4InBlocks());  // as GPT-OSS
  mlp->Add("experts", std::move(experts));
  auto root = std::make_unique<Tree>("ExpertModel");
  root->Add("mlp", std::move(mlp));
  root->Add("norm", std::make_unique<RMSNorm>(context, kExperts.hidden));
  return root;
}

Manifest ManifestOf(const Weights& weights, WorkerPool& pool) {
  std::vector<ManifestEntry> entries;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const NamedTensor tensor = weights.at(i);
    entries.push_back(EntryOf(tensor.name, tensor.tensor, pool));
  }
  return Manifest("rig", 0, std::move(entries));
}

void ForEachParameter(const Module& module, const std::string& path,
                      const std::function<void(const std::string& path, const Parameter&)>& visit) {
  for (const Parameter& parameter : module.parameters()) visit(path, parameter);
  for (const auto& [name, child] : module.children()) ForEachParameter(*child, path + name + ".", visit);
}

// A rank's parameters in full precision, by their full names.
using Parameters = std::map<std::string, const Parameter*>;

Parameters LoadSlowly(Module& model, const Weights& weights) {
  model.load_weights(*weights.Stream());
  Parameters parameters;
  ForEachParameter(model, "", [&](const std::string& path, const Parameter& parameter) {
    parameters.emplace(path + parameter.spec.name, &parameter);
  });
  return parameters;
}

std::vector<float> Floats(const Parameter& parameter) {
  std::vector<float> values(static_cast<std::size_t>(parameter.spec.num_elements()));
  auto* to = reinterpret_cast<std::byte*>(values.data());
  if (parameter.spec.dtype == DType::kF32) {
    std::memcpy(to, parameter.storage.data(), values.size() * sizeof(float));
  } else {
    Cast(parameter.spec.dtype, parameter.storage.data(), DType::kF32, to, values.size());
  }
  return values;
}

float Amax(std::span<const float> values) {
  float amax = 0;
  for (const float value : values) amax = std::max(amax, std::abs(value));
  return amax;
}

// Matrix by matrix. `all`: the same parameter as one rank that is alone holds it.
void QuantizeInto(const RigOptions& options, const std::string& name, const Parameter& part, const Parameter& all,
                  ServedBytes& served) {
  const MatrixStack stack = MatrixStack::Of(part.spec.shape);
  const LocalExperts local = LocalExperts::Of(options.parallel, kExperts.experts);
  const std::vector<float> values = Floats(all);
  const auto cols = static_cast<std::size_t>(all.spec.shape.back());
  const std::size_t size = values.size() / static_cast<std::size_t>(MatrixStack::Of(all.spec.shape).count);
  const auto specs = KernelTensorsOf({name, part.spec.dtype, part.spec.shape}, *MakeRecipe(options.recipe));
  for (const TensorSpec& spec : specs) served[spec.name];  // a rank may have no expert
  for (std::int64_t i = 0; i < stack.count; ++i) {
    const std::int64_t index = all.spec.shape.size() == 2 ? 0 : local.first + i * local.step;
    const auto whole = std::span(values).subspan(static_cast<std::size_t>(index) * size, size);
    std::vector<float> rows;
    AmaxInput amax{.tensor = Amax(whole), .rows = {}};
    if (part.shard_axis == ShardAxis::kCols) {
      for (std::size_t at = 0; at < size; at += cols) rows.push_back(Amax(whole.subspan(at, cols)));
      amax.rows = rows;
    }
    MatrixView matrix = AsMatrix(part.spec, part.storage.data());
    matrix.rows = stack.rows;
    matrix.data += i * stack.rows * matrix.row_stride;
    const auto result = QuantizeSlowly(options.recipe, {}, matrix, amax);
    for (std::size_t t = 0; t < specs.size(); ++t) {
      std::vector<std::byte>& bytes = served[specs[t].name];
      bytes.insert(bytes.end(), result[t].begin(), result[t].end());
    }
  }
}

std::unique_ptr<Module> Decoder(const RigOptions& options) {
  const ModelConfig config = ModelConfig::Parse(Config(options));
  const ModelRegistry registry = ModelRegistry::Builtin();
  if (!options.draft) return registry.Build(config, options.parallel);
  ModelConfig eagle = config;
  eagle.architectures = {"EagleLlamaForCausalLM"};
  eagle.num_hidden_layers = 1;
  return registry.BuildWithDraft(config, eagle, options.parallel);
}

void AddDraft(const std::function<void(const std::string& name, Shape shape)>& add) {
  add("draft.fc.weight", {128, 256});
  for (const auto& [name, rows] : {std::pair("q", 256), std::pair("k", 128), std::pair("v", 128)}) {
    add("draft.layers.0.self_attn." + std::string(name) + "_proj.weight", {rows, 128});
  }
  add("draft.layers.0.self_attn.o_proj.weight", {128, 256});
  add("draft.layers.0.post_attention_layernorm.weight", {128});
  add("draft.layers.0.mlp.gate_proj.weight", {256, 128});
  add("draft.layers.0.mlp.up_proj.weight", {256, 128});
  add("draft.layers.0.mlp.down_proj.weight", {128, 256});
}

void AddScales(Weights& weights, const RigOptions& options, std::uint32_t seed) {
  for (std::int64_t i = 0; i < options.layers; ++i) {
    const std::string path = "model.layers." + std::to_string(i) + ".";
    const auto add = [&](const std::string& name, float value) {
      weights.Add({path + name, options.source, {}}, {value * static_cast<float>(seed + 1)});
    };
    if (options.scales.kv_cache && seed % 2 == 1) {
      add("self_attn.k_proj.k_scale", 0.25F);
      add("self_attn.v_proj.v_scale", 0.5F);
    }
    if (!options.scales.inputs) continue;
    float value = 0.125F;
    for (const char* layer : {"self_attn.qkv_proj", "self_attn.o_proj", "mlp.gate_up_proj", "mlp.down_proj"}) {
      add(std::string(layer) + ".input_scale", value *= 2);
    }
  }
}

// What nothing was loaded into is what it is without.
std::vector<std::byte> BytesOf(const Parameter& parameter) {
  const auto bytes = parameter.storage.span();
  if (!parameter.on_meta()) return {bytes.begin(), bytes.end()};
  const std::vector<float> values(static_cast<std::size_t>(parameter.spec.num_elements()), parameter.fallback.value());
  const auto fallback = std::as_bytes(std::span(values));
  return {fallback.begin(), fallback.end()};
}

}  // namespace

std::unique_ptr<Module> RigModel(const RigOptions& options) {
  std::unique_ptr<Module> model = options.experts ? ExpertModel(options) : Decoder(options);
  model->SetTransforms(options.transforms);
  HoldScales(*model, options.scales);
  return model;
}

Weights RigWeights(const RigOptions& options, std::uint32_t seed) {
  Weights weights;
  if (options.experts) {
    weights.AddRandom({"mlp.gate.weight", options.source, {kExperts.experts, kExperts.hidden}}, seed);
    AddExperts(weights, "mlp.experts", kExperts, *options.experts, options.source, seed);
    weights.AddRandom({"norm.weight", options.source, {kExperts.hidden}}, seed + 1);
    return weights;
  }
  const auto add = [&](const std::string& name, Shape shape) {
    weights.AddRandom({name, options.source, std::move(shape)},
                      seed * 1000 + static_cast<std::uint32_t>(weights.size()));
  };
  add("model.embed_tokens.weight", {options.vocab, 128});
  for (std::int64_t i = 0; i < options.layers; ++i) {
    const std::string path = "model.layers." + std::to_string(i) + ".";
    add(path + "input_layernorm.weight", {128});
    for (const auto& [name, rows] : {std::pair("q", 256), std::pair("k", 128), std::pair("v", 128)}) {
      add(path + "self_attn." + name + "_proj.weight", {rows, 128});
      add(path + "self_attn." + name + "_proj.bias", {rows});
    }
    add(path + "self_attn.o_proj.weight", {128, 256});
    add(path + "post_attention_layernorm.weight", {128});
    add(path + "mlp.gate_proj.weight", {256, 128});
    add(path + "mlp.up_proj.weight", {256, 128});
    add(path + "mlp.down_proj.weight", {128, 256});
  }
  AddScales(weights, options, seed);
  add("model.norm.weight", {128});
  if (!options.tied) add("lm_head.weight", {options.vocab, 128});
  if (options.draft) AddDraft(add);
  return weights;
}

std::size_t IndexOf(const Weights& weights, const std::string& name) {
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights.spec(i).name == name) return i;
  }
  throw std::runtime_error("no tensor is called " + name);
}

EngineMemory::EngineMemory(const Module& model, const Recipe& recipe) {
  std::size_t size = kGap;
  std::vector<std::size_t> offsets;
  for (const TensorSpec& spec : KernelTensorsOf(LoadPlan::WithoutTensors(model), recipe)) {
    offsets.push_back(size);
    table_.push_back({spec.name, nullptr, spec.dtype, spec.shape, {}, {}});
    size += static_cast<std::size_t>(spec.num_bytes()) + kGap;
  }
  memory_.assign(size, kCanary);
  owned_.assign(size, false);
  for (std::size_t i = 0; i < table_.size(); ++i) {
    table_[i].address = memory_.data() + offsets[i];
    std::fill_n(owned_.begin() + static_cast<std::ptrdiff_t>(offsets[i]), NumBytes(table_[i].dtype, table_[i].shape),
                true);
  }
}

bool EngineMemory::CanariesAreAlive() const {
  for (std::size_t i = 0; i < memory_.size(); ++i) {
    if (!owned_[i] && memory_[i] != kCanary) return false;
  }
  return true;
}

ServedBytes EngineMemory::Served() const {
  const CapturedBuffers captured = Adopt();
  ServedBytes served;
  for (const CapturedBuffer& buffer : captured.buffers()) served[buffer.name] = captured.Read(buffer);
  return served;
}

Rig::Rig(const RigOptions& given_options, std::byte fill, const Weights* given)
    : options(given_options),
      weights(given != nullptr ? *given : RigWeights(options)),
      filling(host, fill),
      manifest(ManifestOf(weights, pool)),
      recipe(MakeRecipe(options.recipe)),
      model(RigModel(options)),
      plan(LoadPlan::Build(*model, manifest)),
      engine(*model, *recipe),
      captured(engine.Adopt()),
      layout(plan, *recipe, captured),
      staging(layout, *place) {}

PipelineParts Rig::parts() { return {plan, manifest, layout, *recipe, staging, work, pool, failpoints}; }

std::vector<Piece> Rig::Pieces(std::uint64_t chunk_bytes) const {
  const auto rows = static_cast<std::uint64_t>(std::max<std::int64_t>(recipe->row_granularity(), 1));
  return MakeSchedule(plan, manifest, {.chunk_bytes = chunk_bytes, .row_multiple = rows}).pieces;
}

RegionView Rig::ViewOf(const Piece& piece) const {
  const Region region = RegionOf(plan, manifest, piece);
  return {weights.bytes(region.tensor).data() + region.offset, region.row_bytes, region.rows,
          region.rows > 1 ? region.stride : region.row_bytes};
}

void Rig::GiveAmax(AmaxTable& amax) {
  for (const AmaxRequest& request : AmaxRequests(plan, manifest, *recipe)) {
    const TensorSpec read = AsRead(manifest.entry(request.tensor).spec, request);
    amax.AddAxes(request.tensor, request.kept, Box::Whole(read.shape),
                 AmaxOver(read, weights.bytes(request.tensor).data(), request.kept, pool));
  }
}

std::uint32_t Rig::PlacementOf(const std::string& tensor) const {
  return plan.PlacementsOf(static_cast<std::uint32_t>(manifest.Find(tensor))).front();
}

std::uint32_t Rig::LayerOf(const std::string& path) const {
  for (std::uint32_t i = 0; i < plan.layers().size(); ++i) {
    if (plan.layers()[i].path == path) return i;
  }
  throw std::runtime_error("no layer is called " + path);
}

Piece Rig::Whole(const std::string& tensor) const {
  const std::uint32_t placement = PlacementOf(tensor);
  return {placement, 0, PackedBytes(plan.placements()[placement], manifest)};
}

ServedBytes Rig::Staged() const {
  ServedBytes staged;
  for (const KernelTensor& tensor : layout.tensors()) {
    const std::span<std::byte> bytes = staging.BytesOf(tensor);
    staged[tensor.spec.name].assign(bytes.begin(), bytes.end());
  }
  return staged;
}

ServedBytes ServedSlowly(const RigOptions& options, const Weights& weights) {
  RigOptions alone = options;
  alone.parallel = {};
  const std::unique_ptr<Module> part_model = RigModel(options);
  const std::unique_ptr<Module> whole_model = RigModel(alone);
  const Parameters whole = LoadSlowly(*whole_model, weights);
  ServedBytes served;
  for (const auto& [name, parameter] : LoadSlowly(*part_model, weights)) {
    if (parameter->quantize && options.recipe != "none") {
      QuantizeInto(options, name, *parameter, *whole.at(name), served);
    } else {
      served[name] = BytesOf(*parameter);
    }
  }
  return served;
}

std::vector<std::string> Differences(const ServedBytes& a, const ServedBytes& b) {
  std::vector<std::string> names;
  for (const auto& [name, bytes] : a) {
    const auto other = b.find(name);
    if (other == b.end() || other->second != bytes) names.push_back(name);
  }
  for (const auto& [name, bytes] : b) {
    if (!a.contains(name)) names.push_back(name);
  }
  return names;
}

}  // namespace layercast::testing
