// A receiver over an engine's memory, and sources for it: what the tests of the receiver share.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine_side/quant/recipes/recipe_table.h"
#include "layercast/receiver.h"
#include "src/base/memory/caching_memory.h"
#include "src/checkpoint/safetensors/safetensors_writer.h"
#include "tests/support/failing_memory.h"
#include "tests/support/reload/rig.h"
#include "tests/support/temp_folder.h"

namespace layercast::testing {

// The policies that write layer by layer.
inline constexpr CommitPolicy kLayerwise[] = {CommitPolicy::kUndo, CommitPolicy::kInPlace};

// Beside a staged copy: which version it is.
inline constexpr std::size_t kStagedRecord = 4 * sizeof(Digest) + sizeof(std::uint64_t);

struct ReceiverRig {
  // `caching`: layers' memory is used again, as by default.
  explicit ReceiverRig(RigOptions given = {.recipe = "fp8_per_channel"}, bool direct = true, bool caching = false,
                       CommitPolicy commit = CommitPolicy::kStaged)
      : options(std::move(given)), engine(*RigModel(options), *MakeRecipe(options.recipe)) {
    ReceiverOptions receiver_options;
    receiver_options.direct = direct;
    receiver_options.commit = commit;
    receiver_options.threads = 1;
    receiver_options.chunk_bytes = 70'000;
    receiver_options.keep_source = options.keep_source;
    receiver_options.delta = DeltaUse::kAlways;
    receiver_options.staging_memory = &staging_memory;
    receiver_options.layer_memory = &layer_memory;
    if (caching) receiver_options.layer_memory = &layer_cache;
    receiver_options.on_progress = [this](const ReloadProgress& progress) {
      if (on_progress) on_progress(progress);
    };
    receiver = std::make_unique<Receiver>(RigModel(options), options.parallel,
                                          QuantizationConfig{options.recipe, false, options.requantize}, engine.Adopt(),
                                          receiver_options);
  }

  Weights Version(std::uint32_t seed) const { return RigWeights(options, seed); }
  ServedBytes Expected(const Weights& weights) const { return ServedSlowly(options, weights); }

  RigOptions options;
  HostMemory host;
  FillingMemory filling{host, std::byte{0xA5}};
  FailingMemory failing{filling};
  CountingMemory staging_memory{failing};
  CountingMemory layer_memory{failing};
  CachingMemory layer_cache{layer_memory};
  EngineMemory engine;
  std::function<void(const ReloadProgress&)> on_progress;
  std::unique_ptr<Receiver> receiver;
};

inline std::vector<TensorSpec> SpecsOf(const Weights& weights) {
  std::vector<TensorSpec> specs;
  for (std::size_t i = 0; i < weights.size(); ++i) specs.push_back(weights.spec(i));
  return specs;
}

inline std::vector<NamedTensor> TensorsOf(const Weights& weights) {
  std::vector<NamedTensor> tensors;
  for (std::size_t i = 0; i < weights.size(); ++i) tensors.push_back(weights.at(i));
  return tensors;
}

inline ReloadSource EagerSource(const Weights& weights) {
  return FromIterator(MakeWeightsIterator(TensorsOf(weights)), SpecsOf(weights));
}

// Each tensor exists only until the next one is asked for.
inline ReloadSource LazySource(const Weights& weights) {
  auto next = [&weights, at = std::size_t{0},
               bytes = std::vector<std::byte>()]() mutable -> std::optional<NamedTensor> {
    std::fill(bytes.begin(), bytes.end(), std::byte{0xFF});
    if (at == weights.size()) return std::nullopt;
    bytes = weights.bytes(at);
    NamedTensor tensor = weights.at(at++);
    tensor.tensor.data = bytes.data();
    return tensor;
  };
  return FromIterator(MakeWeightsIterator(std::move(next)), SpecsOf(weights));
}

inline void WriteCheckpoint(const TempFolder& folder, const Weights& weights) {
  WriteSafetensors(folder / "model.safetensors", TensorsOf(weights));
}

}  // namespace layercast::testing
