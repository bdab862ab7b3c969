// A block of a module with random kernel tensors, computed twice: by the CPU engine's block, and by that of the decode
// step in tensors. For tests of the latter.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine_side/engine/cpu/blocks/block.h"
#include "engine_side/engine/torch/tensors/tensor_block.h"
#include "layercast/captured_buffers.h"
#include "layercast/model/layer_context.h"
#include "layercast/model/module.h"
#include "tests/engine_side/engine/torch/recorded_step.h"
#include "tests/support/filled_slots.h"

namespace layercast::testing {

// What a block is made of. Value.
struct BlockKind {
  std::string name;
  std::function<std::unique_ptr<Module>(const LayerContext& context)> make;
};

// Resource; one thread only.
class BlockPair {
 public:
  static constexpr std::int64_t kHidden = 24;
  static constexpr std::size_t kAdapterSlots = 3;

  BlockPair(const BlockKind& kind, DType dtype);

  // Of all tokens, sequence by sequence; fp32 [tokens, hidden]. Both begin anew.
  at::Tensor ByDecoder();
  // In steps of a few rows, some of which are not used. `inputs`: as many as there are tokens.
  at::Tensor InTensors(const at::Tensor& inputs);
  at::Tensor InTensors() { return InTensors(inputs_); }
  // From now on InTensors replays operations that are recorded now, with whatever is in the adapters' slots.
  void Record();
  // A sequence of such inputs in every slot, as long as one can be.
  void FillSlots(float value);

  at::Tensor KernelTensor(const std::string& name);  // "block.experts.w2_weight"; its memory

  FilledSlots& adapters() { return *adapters_; }
  // From now on the tokens of each sequence have this slot. At first they have none.
  void UseAdapters(std::vector<std::int32_t> of_sequences) { adapters_of_ = std::move(of_sequences); }

 private:
  struct Token {
    std::int64_t sequence, position;
  };
  static std::vector<Token> Tokens();
  std::vector<std::vector<std::size_t>> Steps() const;  // which tokens, in turn
  at::Tensor Step(const std::vector<Token>& tokens, const at::Tensor& rows);
  void Place(const std::vector<Token>& tokens, const at::Tensor& rows);
  at::Tensor Scales() const;  // StepInputs::adapter_scales
  void AddBuffers(const Module& module, const std::string& path);

  DType dtype_;
  std::unique_ptr<Module> module_;
  std::vector<at::Tensor> memory_;
  std::vector<CapturedBuffer> buffers_;
  RotaryTables rotary_;
  RotaryTensors rotary_tensors_;
  SingleRank alone_;
  std::unique_ptr<FilledSlots> adapters_;
  std::vector<std::int32_t> adapters_of_;
  std::unique_ptr<Block> block_;
  std::unique_ptr<TensorBlock> tensor_block_;
  at::Tensor inputs_;
  // Of a step, in memory that does not move.
  StepInputs step_inputs_;
  at::Tensor step_rows_, step_out_;
  std::optional<RecordedStep> recorded_;
};

}  // namespace layercast::testing
