#include "engine_side/engine/cpu/blocks/moe_block.h"

#include <algorithm>
#include <utility>

#include "engine_side/engine/cpu/blocks/adapted_linear.h"
#include "engine_side/engine/cpu/kernels/row_kernels.h"

namespace layercast {

MoeBlock::MoeBlock(MoeDescription description, const BlockContext& context)
    : description_(std::move(description)),
      collective_(context.collective),
      dtype_(context.dtype),
      router_(description_.router) {
  if (description_.shared) shared_.emplace(*description_.shared, context);
}

void MoeBlock::Forward(std::span<const TokenRow> rows, const Activations& in, Activations& out) {
  const SlotGroups groups = GroupBySlot(rows);
  const RoutedTokens routed = router_.Route(groups, in);
  if (description_.to_latent) {
    ColumnParallel(in, *description_.to_latent, groups, latent_in_);
    SumExperts(rows, routed, latent_in_, latent_out_);
    ColumnParallel(latent_out_, *description_.from_latent, groups, out);
  } else {
    SumExperts(rows, routed, in, out);
  }
  if (shared_) AddShared(rows, groups, in, out);
}

void MoeBlock::SumExperts(std::span<const TokenRow> rows, const RoutedTokens& routed, const Activations& in,
                          Activations& out) {
  out.Reset(in.rows(), in.cols());
  // Every token's experts are added up in order of their number, whatever other tokens picked.
  for (std::size_t i = 0; i < description_.experts.size(); ++i) {
    const std::int64_t expert = description_.local.first + static_cast<std::int64_t>(i) * description_.local.step;
    AddExpert(description_.experts[i], rows, routed[static_cast<std::size_t>(expert)], in, out);
  }
  collective_.AllReduceSum(out.values());  // in fp32, before anything is rounded
  RoundTo(dtype_, out.values());
}

// The sum over ranks comes later. Only one of them has the bias of `down`; each adds what adapters make of its part of
// the columns, which is no rounded number, so that nothing needs to be exchanged.
void MoeBlock::AddExpert(const MlpDescription& expert, std::span<const TokenRow> rows,
                         std::span<const RoutedToken> tokens, const Activations& in, Activations& out) {
  if (tokens.empty()) return;
  std::vector<TokenRow> of_expert;
  tokens_.Reset(tokens.size(), in.cols());
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    std::ranges::copy(in[tokens[t].row], tokens_.row(t));
    of_expert.push_back(rows[tokens[t].row]);
  }
  const SlotGroups groups = GroupBySlot(of_expert);
  ColumnParallel(tokens_, expert.up, groups, up_out_);
  ActivateUp(expert, up_out_, dtype_, activated_);
  ColumnParallel(activated_, expert.down, groups, down_out_);
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const std::span<float> sum = out[tokens[t].row];
    for (std::size_t c = 0; c < sum.size(); ++c) sum[c] += tokens[t].weight * down_out_.row(t)[c];
  }
}

void MoeBlock::AddShared(std::span<const TokenRow> rows, const SlotGroups& groups, const Activations& in,
                         Activations& out) {
  shared_->Forward(rows, in, shared_out_);
  if (description_.shared_gate) {
    ColumnParallel(in, *description_.shared_gate, groups, scores_);
    for (std::size_t i = 0; i < in.rows(); ++i) {
      const std::span<float> score = scores_[i];
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
