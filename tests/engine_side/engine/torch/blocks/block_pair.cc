#include "tests/engine_side/engine/torch/blocks/block_pair.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <utility>

#include "engine_side/engine/built_in/rope.h"
#include "engine_side/engine/torch/tensors/tensor_linear.h"
#include "engine_side/engine/torch/tensors/torch_type.h"

namespace layercast::testing {
namespace {

constexpr StepShape kShape{.rows = 5, .slots = 3, .max_tokens = 16};
constexpr std::int64_t kLengths[] = {11, 1, 6};

at::Tensor Normal(at::IntArrayRef shape, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  const at::Tensor values = at::empty(shape, at::kFloat);
  std::generate_n(values.mutable_data_ptr<float>(), values.numel(), [&] { return normal(random); });
  return values;
}

}  // namespace

BlockPair::BlockPair(const BlockKind& kind, DType dtype)
    : dtype_(dtype),
      module_(kind.make(LayerContext{.dtype = dtype})),
      rotary_(MakeRope, dtype),
      rotary_tensors_(kShape.max_tokens, at::kCPU),
      adapters_of_(std::size(kLengths), -1) {
  AddBuffers(*module_, "block");
  std::vector<AdapterTerm> terms = AdapterTermsOf(*module_);
  for (AdapterTerm& term : terms) term.layer.insert(0, "block.");
  adapters_ = std::make_unique<FilledSlots>(std::move(terms),
                                            AdapterSlotSizes{.slots = kAdapterSlots, .max_rank = 6, .dtype = dtype});
  CapturedWeights weights(buffers_);
  AdapterLookup lookup(&adapters_->slots(), {});
  const BlockDescription description =
      DescribeBlock(*module_, "block", {weights, rotary_, dtype, "the decode step in tensors", &lookup});
  weights.CheckAllUsed();
  lookup.CheckAllUsed();
  tensor_block_ = MakeTensorBlock(description, TensorContext{rotary_tensors_, at::kCPU, *TorchTypeOf(dtype), kShape});
  block_ = MakeBlock(description, BlockContext{alone_, dtype});
  const auto indices = [] { return at::empty({kShape.rows}, at::kLong); };
  step_inputs_ = {at::Tensor(), indices(), indices(), indices(), at::empty_like(Scales())};
  step_rows_ = at::empty({kShape.rows, kHidden}, at::kFloat);
  inputs_ = Rounded(Normal({static_cast<std::int64_t>(Tokens().size()), kHidden}, 1), *TorchTypeOf(dtype));
}

void BlockPair::AddBuffers(const Module& module, const std::string& path) {
  const auto add = [&](const TensorSpec& spec, bool decay) {
    const at::Tensor normal = Normal(spec.shape, 7 + static_cast<std::uint32_t>(memory_.size())) * 0.3F;
    memory_.push_back((decay ? -normal.abs() : normal).to(*TorchTypeOf(spec.dtype)));
    buffers_.push_back(
        {path + "." + spec.name, static_cast<std::byte*>(memory_.back().data_ptr()), spec.dtype, spec.shape, {}, {}});
  };
  for (const Parameter& parameter : module.parameters()) add(parameter.spec, false);
  for (const DerivedTensor& derived : module.derived()) add(derived.spec, derived.spec.name == "A");
  for (const auto& [name, child] : module.children()) AddBuffers(*child, path + "." + name);
}

std::vector<BlockPair::Token> BlockPair::Tokens() {
  std::vector<Token> tokens;
  for (std::int64_t sequence = 0; sequence < std::ssize(kLengths); ++sequence) {
    for (std::int64_t position = 0; position < kLengths[sequence]; ++position) tokens.push_back({sequence, position});
  }
  return tokens;
}

std::vector<std::vector<std::size_t>> BlockPair::Steps() const {
  const std::vector<Token> tokens = Tokens();
  std::vector<std::size_t> order(tokens.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return tokens[i].position; });
  std::vector<std::vector<std::size_t>> steps(1);
  for (const std::size_t i : order) {
    const auto same_slot = [&](std::size_t other) { return tokens[other].sequence == tokens[i].sequence; };
    if (std::ssize(steps.back()) == kShape.rows ||
        (tensor_block_->is_recurrent() && std::ranges::any_of(steps.back(), same_slot))) {
      steps.emplace_back();
    }
    steps.back().push_back(i);
  }
  return steps;
}

at::Tensor BlockPair::ByDecoder() {
  block_->DropAll();
  std::vector<TokenRow> rows;
  for (const Token& token : Tokens()) {
    rows.push_back({.sequence = static_cast<std::uint64_t>(token.sequence),
                    .position = static_cast<std::size_t>(token.position),
                    .adapter = adapters_of_[static_cast<std::size_t>(token.sequence)]});
  }
  Activations in(rows.size(), kHidden), out;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::memcpy(in.row(i), inputs_[static_cast<std::int64_t>(i)].const_data_ptr<float>(), kHidden * sizeof(float));
  }
  block_->Forward(rows, in, out);
  std::vector<at::Tensor> outputs;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    outputs.push_back(at::from_blob(out.row(i), {static_cast<std::int64_t>(out.cols())}, at::kFloat).clone());
  }
  return at::stack(outputs);
}

at::Tensor BlockPair::InTensors(const at::Tensor& inputs) {
  const std::vector<Token> tokens = Tokens();
  std::vector<at::Tensor> outputs(tokens.size());
  for (const std::vector<std::size_t>& step : Steps()) {
    std::vector<Token> placed;
    std::vector<at::Tensor> rows;
    for (const std::size_t i : step) {
      placed.push_back(tokens[i]);
      rows.push_back(inputs[static_cast<std::int64_t>(i)]);
    }
    const at::Tensor out = Step(placed, at::stack(rows));
    for (std::size_t row = 0; row < step.size(); ++row) outputs[step[row]] = out[static_cast<std::int64_t>(row)];
  }
  return at::stack(outputs);
}

void BlockPair::FillSlots(float value) {
  for (std::int64_t position = 0; position < kShape.max_tokens; ++position) {
    Step({{0, position}, {1, position}, {2, position}}, at::full({3, kHidden}, value, at::kFloat));
  }
}

at::Tensor BlockPair::KernelTensor(const std::string& name) {
  const auto found = std::ranges::find(buffers_, name, &CapturedBuffer::name);
  return memory_.at(static_cast<std::size_t>(found - buffers_.begin()));
}

at::Tensor BlockPair::Scales() const {
  std::vector<float> scales;
  for (std::size_t slot = 0; slot < kAdapterSlots; ++slot) {
    for (const AdapterNumbers& numbers : adapters_->slots().Numbers(slot)) {
      scales.push_back(numbers.rank > 0 ? numbers.scale : 0.0F);
    }
  }
  return at::tensor(scales).view({kAdapterSlots, -1});
}

void BlockPair::Record() {
  Place({}, at::empty({0, kHidden}));
  recorded_.emplace([&] { step_out_ = tensor_block_->Forward(step_inputs_, step_rows_); });
}

at::Tensor BlockPair::Step(const std::vector<Token>& tokens, const at::Tensor& rows) {
  Place(tokens, rows);
  if (!recorded_) return tensor_block_->Forward(step_inputs_, step_rows_);
  recorded_->Replay();
  return step_out_.clone();
}

// Rows that are not used are nobody's, and no numbers.
void BlockPair::Place(const std::vector<Token>& tokens, const at::Tensor& rows) {
  std::vector<std::int64_t> positions(kShape.rows, 0), slots(kShape.rows, kShape.slots), adapters(kShape.rows, -1);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    positions[i] = tokens[i].position;
    slots[i] = tokens[i].sequence;
    adapters[i] = adapters_of_[static_cast<std::size_t>(tokens[i].sequence)];
  }
  step_inputs_.positions.copy_(at::tensor(positions));
  step_inputs_.slots.copy_(at::tensor(slots));
  step_inputs_.adapters.copy_(at::tensor(adapters));
  step_inputs_.adapter_scales.copy_(Scales());
  step_rows_.fill_(std::numeric_limits<float>::quiet_NaN()).narrow(0, 0, rows.size(0)).copy_(rows);
}

}  // namespace layercast::testing
