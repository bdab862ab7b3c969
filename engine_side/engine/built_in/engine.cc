#include "engine_side/engine/built_in/engine.h"

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "engine_side/engine/built_in/rope.h"
#include "engine_side/engine/cpu/cpu_decoder.h"
#include "engine_side/reload/layout/kernel_layout.h"
#include "layercast/error.h"
#include "src/base/memory/buffer_for.h"

namespace layercast {
namespace {

Buffer MemoryOf(const TensorSpec& spec, MemoryResource& memory) {
  const std::string what = "'" + spec.name + "' " + Describe(spec.dtype, spec.shape);
  return BufferFor(what, memory, static_cast<std::size_t>(spec.num_bytes()));
}

MakeForwardPass DecoderAmong(const Peers& peers) {
  return [peers](const Module& model, const ParallelConfig& parallel, std::span<const CapturedBuffer> buffers,
                 const AdapterSlots* adapters) {
    return std::make_unique<Decoder>(model, parallel, buffers, peers, MakeRope, std::nullopt, adapters);
  };
}

}  // namespace

Engine::Engine(const Module& model, const ParallelConfig& parallel, const LayerRecipes& recipes, MemoryResource& memory,
               const MakeForwardPass& make, const AdapterSlots* adapters) {
  for (TensorSpec& spec : KernelTensorsOf(LoadPlan::WithoutTensors(model), recipes)) {
    memory_.push_back(MemoryOf(spec, memory));
    buffers_.push_back({.name = std::move(spec.name),
                        .address = memory_.back().data(),
                        .dtype = spec.dtype,
                        .shape = std::move(spec.shape),
                        .device = memory.device()});
  }
  pass_ = make(model, parallel, buffers_, adapters);
}

Engine::Engine(const Module& model, const ParallelConfig& parallel, const LayerRecipes& recipes, MemoryResource& memory,
               const Peers& peers, const AdapterSlots* adapters)
    : Engine(model, parallel, recipes, memory, DecoderAmong(peers), adapters) {}

}  // namespace layercast
