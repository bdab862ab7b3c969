// A host program describes a model family that this build does not know (Seed-OSS), and loads a checkpoint of it:
// own_family FOLDER
#include <cstddef>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "layercast/model/decoder.h"
#include "layercast/model/registry.h"
#include "layercast/receiver.h"

namespace {

using namespace layercast;

// Like Llama, but attention's output has a bias of its own switch.
std::unique_ptr<Module> BuildSeedOss(const ModelConfig& config, const ParallelConfig& parallel, DType dtype) {
  const LayerContext context{.parallel = parallel, .dtype = dtype};
  const auto fields = nlohmann::json::parse(config.json);  // fields that only this family has
  const AttentionOptions attention{.qkv_bias = config.attention_bias,
                                   .output_bias = fields.value("attention_out_bias", false)};
  return std::make_unique<DecoderForCausalLM>("SeedOssForCausalLM", context, config, [&](std::int64_t layer) {
    return std::make_unique<DecoderLayer>(context, config,
                                          std::make_unique<Attention>(context, config, layer, attention),
                                          std::make_unique<GatedMlp>(context, config, config.mlp_bias));
  });
}

// Allocates the engine's memory. A real engine has it already.
void Allocate(const Module& module, const std::string& path, std::vector<std::vector<std::byte>>& memory,
              std::vector<CapturedBuffer>& table) {
  for (const Parameter& parameter : module.parameters()) {
    memory.emplace_back(static_cast<std::size_t>(parameter.spec.num_bytes()));
    table.push_back(
        {path + parameter.spec.name, memory.back().data(), parameter.spec.dtype, parameter.spec.shape, {}, {}});
  }
  for (const auto& [name, child] : module.children()) Allocate(*child, path + name + ".", memory, table);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) return std::cerr << "usage: own_family CHECKPOINT\n", 2;
  ModelRegistry registry = ModelRegistry::Builtin();
  registry.Register("SeedOssForCausalLM", BuildSeedOss);  // the one call
  auto model = registry.Build(ModelDescription::FromDirectory(argv[1]), {});
  std::vector<std::vector<std::byte>> memory;
  std::vector<CapturedBuffer> table;
  Allocate(*model, "", memory, table);
  Receiver receiver(std::move(model), {}, {.recipe = "none"}, CapturedBuffers::Adopt(std::move(table)));
  const ReloadReport report = receiver.ReloadWeights(FromPath(argv[1]));
  std::cout << report.bytes << " bytes loaded, serving " << report.served_digest.ToHex() << '\n';
} catch (const layercast::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
