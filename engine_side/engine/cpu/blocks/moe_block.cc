#include "engine_side/engine/cpu/blocks/moe_block.h"

#include <algorithm>
#include <utility>

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
  const RoutedTokens routed = router_.Route(in);
  if (description_.to_latent) {
    ColumnParallel(in, *description_.to_latent, latent_in_);
    SumExperts(routed, latent_in_, latent_out_);
    ColumnParallel(latent_out_, *description_.from_latent, out);
  } else {
    SumExperts(routed, in, out);
  }
  if (shared_) AddShared(rows, in, out);
}

void MoeBlock::SumExperts(const RoutedTokens& routed, const Activations& in, Activations& out) {
  out.Reset(in.rows(), in.cols());
  // Every token's experts are added up in order of their number, whatever other tokens picked.
  for (std::size_t i = 0; i < description_.experts.size(); ++i) {
    const std::int64_t expert = description_.local.first + static_cast<std::int64_t>(i) * description_.local.step;
    AddExpert(description_.experts[i], routed[static_cast<std::size_t>(expert)], in, out);
  }
  collective_.AllReduceSum(out.values());  // in fp32, before anything is rounded
  RoundTo(dtype_, out.values());
}

void MoeBlock::AddExpert(const MlpDescription& expert, std::span<const RoutedToken> tokens, const Activations& in,
                         Activations& out) {
  if (tokens.empty()) return;
  tokens_.Reset(tokens.size(), in.cols());
  for (std::size_t t = 0; t < tokens.size(); ++t) std::ranges::copy(in[tokens[t].row], tokens_.row(t));
  ColumnParallel(tokens_, expert.up, up_out_);
  ActivateUp(expert, up_out_, dtype_, activated_);
  ColumnParallel(activated_, expert.down, down_out_);  // the sum over ranks comes later; only one of them has the bias
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const std::span<float> sum = out[tokens[t].row];
    for (std::size_t c = 0; c < sum.size(); ++c) sum[c] += tokens[t].weight * down_out_.row(t)[c];
  }
}

void MoeBlock::AddShared(std::span<const TokenRow> rows, const Activations& in, Activations& out) {
  shared_->Forward(rows, in, shared_out_);
  if (description_.shared_gate) {
    ColumnParallel(in, *description_.shared_gate, scores_);
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
