// What tests of the decode graph share: an engine in host memory with a receiver over its captured buffers, versions of
// random weights to reload, and the logits of some sequences by the decoder and by a decode graph.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine_side/engine/built_in/engine.h"
#include "engine_side/engine/ranks/collective.h"
#include "engine_side/engine/torch/decode_graph.h"
#include "layercast/model/config.h"
#include "layercast/receiver.h"
#include "src/base/memory/counting_memory.h"
#include "tests/support/filled_slots.h"

namespace layercast::testing {

// Resource; one thread only.
class DecodeRig {
 public:
  using Sequences = std::vector<std::vector<std::int32_t>>;

  enum class Model : std::uint8_t {
    kDense,
    kHybrid,  // recurrent layers, attention and a mixture of experts
  };
  // `dtype`: as config.json spells it.
  explicit DecodeRig(const std::string& recipe, const std::string& dtype = "float32", Model model = Model::kDense);

  static const Sequences& sequences();  // of several lengths
  static StepShape shape();             // fewer rows than there are tokens, no multiple of the sequences

  const Module& tree() const { return *tree_; }
  const Engine& engine() const { return *engine_; }
  // Through the pipeline and its commit, into the captured buffers.
  void Reload(std::uint64_t seed);
  // Adapters of all of the model's layers, which the engine has, and graphs may be given.
  FilledSlots& adapters() { return adapters_; }
  // Of all tokens, sequence by sequence; by the decoder on CPU. `slots`: the adapter slots of the sequences.
  std::vector<float> DecoderLogits(const std::vector<std::int32_t>& slots = {-1, -1, -1});

 private:
  ModelConfig config_;
  SingleRank collective_;
  HostMemory host_;
  FillingMemory zeros_{host_, std::byte{0}};
  std::unique_ptr<Module> tree_;
  FilledSlots adapters_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Receiver> receiver_;
};

// The same by steps of that shape: the sequences' tokens in turn. `of_one_position`: a step has one row of a sequence.
std::vector<float> LogitsOfSteps(const std::function<Logits(std::span<const DecodeRow>)>& run, bool of_one_position,
                                 const std::vector<std::int32_t>& slots);
std::vector<float> GraphLogits(DecodeGraph& graph, const std::vector<std::int32_t>& slots = {-1, -1, -1});
// max|difference| / max|b|; NaN where any is.
float RelativeDifference(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace layercast::testing
