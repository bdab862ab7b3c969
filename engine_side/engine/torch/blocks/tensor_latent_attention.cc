#include "engine_side/engine/torch/blocks/tensor_latent_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/where.h>

#include <limits>

namespace layercast {
namespace {

// Multiplies each head's vectors, [rows, heads, n], by the head's matrix, which is n rows of the weight, one head after
// another.
at::Tensor TimesOwnMatrix(const at::Tensor& heads, const WeightTensor& weight) {
  const at::Tensor matrices = weight.Read().unflatten(0, {heads.size(1), -1});
  return at::bmm(heads.transpose(0, 1), matrices).transpose(0, 1);
}

}  // namespace

TensorLatentAttention::TensorLatentAttention(const LatentAttentionDescription& description,
                                             const TensorContext& context)
    : spec_(description.spec),
      type_(context.type),
      turns_(context.rotary.For(description.rotary)),
      compress_(description.compress, context.device),
      queries_of_(description.queries_of, context.device),
      o_(description.o_proj, context.device),
      w_uk_t_(description.w_uk_t, context.device),
      w_uv_(description.w_uv, context.device),
      kv_b_(description.kv_b_adapter, context.device),
      q_norm_(IfAny<TensorNorm>(description.q_a_layernorm, context.device)),
      kv_norm_(description.kv_a_layernorm, context.device),
      cache_(1, spec_.sizes.kv_lora_rank + spec_.sizes.qk_rope_head_dim, context) {}

at::Tensor TensorLatentAttention::Forward(const StepInputs& inputs, const at::Tensor& in) {
  const at::Tensor compressed = compress_.Apply(inputs, in);
  const std::int64_t of_queries = spec_.sizes.q_lora_rank;  // 0: there is no small vector
  const at::Tensor latent = kv_norm_.Apply(compressed.narrow(1, of_queries, spec_.sizes.kv_lora_rank)).unsqueeze(1);
  const at::Tensor key =
      compressed.narrow(1, of_queries + spec_.sizes.kv_lora_rank, spec_.sizes.qk_rope_head_dim).unsqueeze(1);
  cache_.Put(inputs, at::cat({latent, Turn(key, inputs.positions)}, -1));
  const at::Tensor queries =
      queries_of_.Apply(inputs, q_norm_ ? q_norm_->Apply(compressed.narrow(1, 0, of_queries)) : in)
          .unflatten(1, {spec_.sizes.num_heads, -1});
  const at::Tensor attended = Rounded(Attend(inputs, InLatentSpace(inputs, queries)), type_);
  return o_.Apply(inputs, Rounded(Values(inputs, attended), type_).flatten(1));
}

// Pairs that are interleaved are first split into halves, for queries and keys alike, so that their products stay the
// same.
at::Tensor TensorLatentAttention::Turn(const at::Tensor& parts, const at::Tensor& positions) const {
  const at::Tensor apart = spec_.interleaved ? parts.unflatten(-1, {-1, 2}).transpose(-1, -2).flatten(-2) : parts;
  return Turned(apart, turns_, positions, type_);
}

at::Tensor TensorLatentAttention::InLatentSpace(const StepInputs& inputs, const at::Tensor& queries) const {
  const at::Tensor of_keys = queries.narrow(2, 0, spec_.sizes.qk_nope_head_dim);
  at::Tensor latent = TimesOwnMatrix(of_keys, w_uk_t_);
  for (std::int64_t slot = 0; slot < kv_b_.slots(); ++slot) {
    const TensorLowRank::OfSlot of = kv_b_.At(inputs, slot);
    const at::Tensor h = at::bmm(of_keys.transpose(0, 1), OfHeads(of.b, 0, of_keys.size(2)));
    const at::Tensor sum = latent + at::matmul(h, of.a).transpose(0, 1) * of.scale;
    latent = at::where(of.rows.view({-1, 1, 1}), sum, latent);
  }
  const at::Tensor turned =
      Turn(queries.narrow(2, spec_.sizes.qk_nope_head_dim, spec_.sizes.qk_rope_head_dim), inputs.positions);
  return at::cat({Rounded(latent, type_), turned}, -1);
}

at::Tensor TensorLatentAttention::Values(const StepInputs& inputs, const at::Tensor& attended) const {
  at::Tensor values = TimesOwnMatrix(attended, w_uv_);
  for (std::int64_t slot = 0; slot < kv_b_.slots(); ++slot) {
    const TensorLowRank::OfSlot of = kv_b_.At(inputs, slot);
    const at::Tensor b = OfHeads(of.b, spec_.sizes.qk_nope_head_dim, spec_.sizes.v_head_dim);
    const at::Tensor h = at::matmul(attended, of.a.t());
    const at::Tensor sum = values + at::bmm(h.transpose(0, 1), b.transpose(1, 2)).transpose(0, 1) * of.scale;
    values = at::where(of.rows.view({-1, 1, 1}), sum, values);
  }
  return values;
}

at::Tensor TensorLatentAttention::OfHeads(const at::Tensor& b, std::int64_t first, std::int64_t count) const {
  return b.unflatten(0, {spec_.sizes.num_heads, -1}).narrow(1, first, count);
}

at::Tensor TensorLatentAttention::Attend(const StepInputs& inputs, const at::Tensor& queries) const {
  const at::Tensor unseen = cache_.Unseen(inputs, 0);  // [rows, max_tokens]
  // Unseen positions may hold NaN, left by an earlier sequence: 0 times NaN would reach the result.
  const at::Tensor cached = cache_.Of(inputs).squeeze(1).masked_fill_(unseen.unsqueeze(-1), 0.0);
  at::Tensor scores = at::matmul(queries, cached.transpose(-1, -2)).mul_(spec_.scale);
  scores.masked_fill_(unseen.unsqueeze(1), -std::numeric_limits<double>::infinity());
  return at::matmul(at::softmax(scores, -1), cached.narrow(-1, 0, spec_.sizes.kv_lora_rank));
}

}  // namespace layercast
