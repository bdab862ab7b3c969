#include "engine_side/engine/cpu/blocks/moe_block.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine_side/engine/cpu/kernels/row_kernels.h"

namespace layercast {
namespace {

std::unique_ptr<Block> FindShared(const MixtureOfExperts& moe, const std::string& path, const BlockContext& context) {
  const std::string& name = moe.options().shared_name;
  const Module* shared = name.empty() ? nullptr : moe.FindChild(name);
  return shared == nullptr ? nullptr : MakeBlock(*shared, path + "." + name, context);
}

std::optional<LinearWeights> FindLatent(const MixtureOfExperts& moe, const std::string& path, const char* name,
                                        CapturedWeights& weights) {
  const Module* projection = moe.FindChild(name);
  return projection == nullptr ? std::nullopt : std::optional(weights.Linear(*projection, path + "." + name));
}

std::optional<WeightView> FindSharedGate(const MixtureOfExperts& moe, const std::string& path,
                                         CapturedWeights& weights) {
  const Module* gate = moe.FindChild("shared_expert_gate");
  return gate == nullptr ? std::nullopt : std::optional(weights.Find(*gate, path + ".shared_expert_gate"));
}

}  // namespace

MoeBlock::MoeBlock(const MixtureOfExperts& moe, const std::string& path, const BlockContext& context)
    : collective_(context.collective),
      dtype_(context.dtype),
      activation_(ActivationOf(moe.hidden_act())),
      gated_(moe.options().experts.gated),
      clamped_gate_(moe.options().clamped_gate),
      router_(moe, path, context),
      local_(moe.experts().local()),
      shared_(FindShared(moe, path, context)),
      shared_gate_(FindSharedGate(moe, path, context.weights)),
      to_latent_(FindLatent(moe, path, "fc1_latent_proj", context.weights)),
      from_latent_(FindLatent(moe, path, "fc2_latent_proj", context.weights)) {
  const std::vector<LinearWeights> w13 = context.weights.LinearStack(moe.experts(), path + ".experts", "w13");
  const std::vector<LinearWeights> w2 = context.weights.LinearStack(moe.experts(), path + ".experts", "w2");
  for (std::size_t i = 0; i < w13.size(); ++i) experts_.push_back({w13[i], w2[i]});
}

void MoeBlock::Forward(std::span<const TokenRow> rows, const Activations& in, Activations& out) {
  const RoutedTokens routed = router_.Route(in);
  if (to_latent_) {
    ColumnParallel(in, *to_latent_, dtype_, latent_in_);
    SumExperts(routed, latent_in_, latent_out_);
    ColumnParallel(latent_out_, *from_latent_, dtype_, out);
  } else {
    SumExperts(routed, in, out);
  }
  if (shared_ != nullptr) AddShared(rows, in, out);
}

void MoeBlock::SumExperts(const RoutedTokens& routed, const Activations& in, Activations& out) {
  out.Reset(in.rows(), in.cols());
  // Every token's experts are added up in order of their number, whatever other tokens picked.
  for (std::size_t i = 0; i < experts_.size(); ++i) {
    const std::int64_t expert = local_.first + static_cast<std::int64_t>(i) * local_.step;
    AddExpert(experts_[i], routed[static_cast<std::size_t>(expert)], in, out);
  }
  collective_.AllReduceSum(out.values());  // in fp32, before anything is rounded
  RoundTo(dtype_, out.values());
}

void MoeBlock::AddExpert(const Expert& expert, std::span<const RoutedToken> tokens, const Activations& in,
                         Activations& out) {
  if (tokens.empty()) return;
  tokens_.Reset(tokens.size(), in.cols());
  for (std::size_t t = 0; t < tokens.size(); ++t) std::ranges::copy(in[tokens[t].row], tokens_.row(t));
  ColumnParallel(tokens_, expert.w13, dtype_, w13_);
  ActivateExpert(expert.w2.weight.cols);
  // Not rounded before the sum over ranks; only one rank holds the bias.
  ColumnParallel(activated_, expert.w2, DType::kF32, down_);
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const std::span<float> sum = out[tokens[t].row];
    for (std::size_t c = 0; c < sum.size(); ++c) sum[c] += tokens[t].weight * down_.row(t)[c];
  }
}

void MoeBlock::ActivateExpert(std::size_t width) {
  activated_.Reset(w13_.rows(), width);
  for (std::size_t t = 0; t < w13_.rows(); ++t) {
    const std::span<const float> w13 = std::as_const(w13_)[t];
    const std::span<float> out = activated_[t];
    std::ranges::copy(w13.first(width), activated_.row(t));
    if (!gated_) {
      Activate(activation_, out, dtype_);
    } else if (clamped_gate_) {
      ClampedGateMultiply(static_cast<float>(clamped_gate_->alpha), static_cast<float>(clamped_gate_->limit), out,
                          w13.last(width), dtype_);
    } else {
      GateMultiply(activation_, out, w13.last(width), dtype_);
    }
  }
}

void MoeBlock::AddShared(std::span<const TokenRow> rows, const Activations& in, Activations& out) {
  shared_->Forward(rows, in, shared_out_);
  if (shared_gate_) {
    shared_scores_.Reset(in.rows(), 1);
    Multiply(in, *shared_gate_, shared_scores_);
    for (std::size_t i = 0; i < in.rows(); ++i) {
      const std::span<float> score = shared_scores_[i];
      RoundTo(dtype_, score);
      score[0] = Sigmoid(score[0]);
      RoundTo(dtype_, score);
      for (float& value : shared_out_[i]) value *= score[0];
    }
    RoundTo(dtype_, shared_out_.values());
  }
  for (std::size_t i = 0; i < out.values().size(); ++i) out.values()[i] += shared_out_.values()[i];
  RoundTo(dtype_, out.values());
}

}  // namespace layercast
