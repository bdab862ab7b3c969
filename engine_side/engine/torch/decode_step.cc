#include "engine_side/engine/torch/decode_step.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "engine_side/engine/torch/tensors/tensor_linear.h"
#include "engine_side/engine/torch/tensors/torch_type.h"
#include "layercast/error.h"

namespace layercast {
namespace {

const DecoderForCausalLM& OneRank(const Module& model, const ParallelConfig& parallel) {
  const auto check = [](const char* name, int size) {
    if (size == 1) return;
    throw Error(ErrorCode::kUnsupported, "the decode step in tensors computes whole models on one rank, got " +
                                             std::string(name) + " " + std::to_string(size));
  };
  check("tp_size", parallel.tp_size);
  check("ep_size", parallel.ep_size);
  check("pp_size", parallel.pp_size);
  return AsDecoder(model);
}

// The device of the first buffer. CapturedWeights refuses any buffer that is on another one.
Device FirstDevice(std::span<const CapturedBuffer> buffers) { return buffers.empty() ? Device() : buffers[0].device; }

constexpr const char* kPass = "the decode step in tensors";

void CheckHasActivations(DType dtype) {
  if (TorchTypeOf(dtype)) return;
  throw Error(ErrorCode::kUnsupported,
              kPass + std::string(" has no activations of ") + std::string(Name(dtype)) + ", the model's dtype");
}

StepShape Whole(StepShape shape, const DecoderForCausalLM& model) {
  const std::int64_t limit = model.max_positions();
  shape.max_tokens = shape.max_tokens == 0 ? limit : std::min(shape.max_tokens, limit);
  return shape;
}

DecoderDescription Described(const DecoderForCausalLM& model, std::span<const CapturedBuffer> buffers,
                             RopeFunction make_rope, const AdapterSlots* adapters) {
  CheckHasActivations(model.dtype());
  return DescribeDecoder(model, buffers, FirstDevice(buffers), std::move(make_rope), kPass, adapters);
}

}  // namespace

DecodeStep::DecodeStep(const Module& model, const ParallelConfig& parallel, std::span<const CapturedBuffer> buffers,
                       RopeFunction make_rope, const StepShape& shape, const AdapterSlots* adapters)
    : DecodeStep(Described(OneRank(model, parallel), buffers, std::move(make_rope), adapters), DeviceOf(buffers),
                 Whole(shape, OneRank(model, parallel)), adapters) {}

at::Device DecodeStep::DeviceOf(std::span<const CapturedBuffer> buffers) { return TorchDeviceOf(FirstDevice(buffers)); }

DecodeStep::DecodeStep(const DecoderDescription& description, const at::Device& device, const StepShape& shape,
                       const AdapterSlots* adapters)
    : device_(device),
      type_(*TorchTypeOf(description.dtype)),
      residual_type_(*TorchTypeOf(description.residual_dtype)),
      shape_(shape),
      vocab_size_(description.vocab_size),
      embedding_scale_(description.embedding->scale),
      logit_softcap_(description.head->logit_softcap),
      embedding_(description.embedding->rows, device),
      lm_head_(description.head->rows, device),
      final_norm_(description.head->norm, device),
      adapters_(adapters),
      embedding_adapter_(description.embedding->adapter, device),
      head_adapter_(description.head->adapter, device) {
  RotaryTensors rotary(shape_.max_tokens, device_);
  const TensorContext context{rotary, device_, type_, shape_};
  for (const StepDescription& step : description.steps) {
    steps_.push_back({TensorNorm(step.norm, device_), MakeTensorBlock(step.block, context),
                      IfAny<TensorNorm>(step.post_norm, device_)});
  }
  is_recurrent_ = std::ranges::any_of(steps_, [](const Step& step) { return step.block->is_recurrent(); });
  if (is_recurrent_) shape_.rows = std::min(shape_.rows, shape_.slots);  // each slot has one row at most
  // From pinned memory the copy to the device is asynchronous, in the stream's order.
  staged_ = at::zeros({4, shape_.rows}, at::TensorOptions(at::kLong).pinned_memory(device_.is_cuda()));
  placed_ = at::empty({4, shape_.rows}, at::TensorOptions(at::kLong).device(device_));
  inputs_ = {placed_[0], placed_[1], placed_[2], placed_[3]};
  if (adapters_ != nullptr) {
    const auto slots = static_cast<std::int64_t>(adapters_->sizes().slots);
    const auto numbers = static_cast<std::int64_t>(adapters_->numbers_of_slot());
    staged_scales_ = at::zeros({slots, numbers}, at::TensorOptions(at::kFloat).pinned_memory(device_.is_cuda()));
    inputs_.adapter_scales = at::zeros({slots, numbers}, at::TensorOptions(at::kFloat).device(device_));
  }
  logits_ = at::zeros({shape_.rows, lm_head_.rows()}, at::TensorOptions(at::kFloat).device(device_));
  Put({});
}

void DecodeStep::Put(std::span<const DecodeRow> rows) {
  Check(rows);
  auto* tokens = staged_.mutable_data_ptr<std::int64_t>();
  std::int64_t* positions = tokens + shape_.rows;
  std::int64_t* slots = positions + shape_.rows;
  std::int64_t* adapters = slots + shape_.rows;
  for (std::size_t i = 0; i < static_cast<std::size_t>(shape_.rows); ++i) {
    const DecodeRow row = i < rows.size() ? rows[i] : DecodeRow{.slot = shape_.slots};
    tokens[i] = row.token;
    positions[i] = row.position;
    slots[i] = row.slot;
    adapters[i] = row.adapter;
  }
  placed_.copy_(staged_, /*non_blocking=*/true);
  if (adapters_ != nullptr) PutScales();
}

// Copies them only after a load: between loads they stay as they are.
void DecodeStep::PutScales() {
  auto* staged = staged_scales_.mutable_data_ptr<float>();
  bool changed = false;
  for (std::size_t slot = 0; slot < adapters_->sizes().slots; ++slot) {
    for (const AdapterNumbers& numbers : adapters_->Numbers(slot)) {
      const float scale = numbers.rank > 0 ? numbers.scale : 0.0F;
      changed = changed || *staged != scale;
      *staged++ = scale;
    }
  }
  if (changed) inputs_.adapter_scales.copy_(staged_scales_, /*non_blocking=*/true);
}

void DecodeStep::Check(std::span<const DecodeRow> rows) const {
  const auto refuse = [](std::size_t row, const std::string& what, std::int64_t got, std::int64_t limit) {
    throw Error(ErrorCode::kInvalidArgument, "row " + std::to_string(row) + " of a decode step: " + what + " " +
                                                 std::to_string(got) + ", expected one below " + std::to_string(limit));
  };
  const auto check = [&](std::size_t row, const char* what, std::int64_t got, std::int64_t limit) {
    if (got < 0 || got >= limit) refuse(row, what, got, limit);
  };
  if (rows.size() > static_cast<std::size_t>(shape_.rows)) {
    throw Error(ErrorCode::kInvalidArgument,
                "a decode step has " + std::to_string(shape_.rows) + " rows, got " + std::to_string(rows.size()));
  }
  const auto adapter_slots = static_cast<std::int64_t>(adapters_ == nullptr ? 0 : adapters_->sizes().slots);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    check(i, "token", rows[i].token, vocab_size_);
    check(i, "position", rows[i].position, shape_.max_tokens);
    check(i, "slot", rows[i].slot, shape_.slots);
    if (rows[i].adapter != -1) check(i, "adapter slot", rows[i].adapter, adapter_slots);
  }
  if (is_recurrent_) CheckOneOfASlot(rows);
}

void DecodeStep::CheckOneOfASlot(std::span<const DecodeRow> rows) const {
  std::vector<bool> taken(static_cast<std::size_t>(shape_.slots));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto slot = static_cast<std::size_t>(rows[i].slot);
    if (taken[slot]) {
      throw Error(ErrorCode::kInvalidArgument, "row " + std::to_string(i) + " of a decode step: slot " +
                                                   std::to_string(slot) +
                                                   " again, expected one row of each slot where layers are recurrent");
    }
    taken[slot] = true;
  }
}

void DecodeStep::Queue() {
  ++times_queued_;
  at::Tensor hidden = Embedded();
  for (const Step& step : steps_) {
    const at::Tensor in = residual_type_ == type_ ? hidden : Rounded(hidden, type_);
    const at::Tensor added = step.block->Forward(inputs_, step.norm.Apply(in));
    hidden = Rounded(hidden + (step.post_norm ? step.post_norm->Apply(added) : added), residual_type_);
  }
  const at::Tensor last = Rounded(final_norm_.Apply(hidden), type_);
  at::mm_out(logits_, last, lm_head_.Read().t());
  head_adapter_.AddTo(logits_, last, inputs_, at::kFloat);
  if (logit_softcap_ > 0.0) logits_.div_(logit_softcap_).tanh_().mul_(logit_softcap_);
}

at::Tensor DecodeStep::Embedded() const {
  const at::Tensor rows = embedding_.ReadRows(inputs_.tokens);
  const at::Tensor base = embedding_scale_ == 1.0 ? rows : Rounded(rows * embedding_scale_, type_);
  embedding_adapter_.AddLookedUp(base, inputs_, type_, embedding_scale_);
  return base;
}

Logits DecodeStep::Read(std::size_t rows) const {
  const at::Tensor wanted = logits_.narrow(0, 0, static_cast<std::int64_t>(rows)).narrow(1, 0, vocab_size_);
  const at::Tensor host = wanted.to(at::kCPU).contiguous();
  const auto* values = host.const_data_ptr<float>();
  return {static_cast<std::size_t>(vocab_size_), {values, values + host.numel()}};
}

}  // namespace layercast
