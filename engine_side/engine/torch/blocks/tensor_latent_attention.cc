#include "engine_side/engine/torch/blocks/tensor_latent_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>

#include <limits>

namespace layercast {
namespace {

TensorLinear FindLinear(const LatentAttention& attention, const char* first, const char* otherwise,
                        const std::string& path, const TensorContext& context) {
  return ChildLinear(attention, attention.FindChild(first) != nullptr ? first : otherwise, path, context);
}

WeightTensor FindAbsorbed(const LatentAttention& attention, const char* name, const std::string& path,
                          const TensorContext& context) {
  return {context.weights.FindDerived(*attention.FindChild("kv_b_proj"), path + ".kv_b_proj", name), context.device};
}

// Multiplies each head's vectors, [rows, heads, n], by the head's matrix, which is n rows of the weight, one head after
// another.
at::Tensor TimesOwnMatrix(const at::Tensor& heads, const WeightTensor& weight) {
  const at::Tensor matrices = weight.Read().unflatten(0, {heads.size(1), -1});
  return at::bmm(heads.transpose(0, 1), matrices).transpose(0, 1);
}

}  // namespace

TensorLatentAttention::TensorLatentAttention(const LatentAttention& attention, const std::string& path,
                                             const TensorContext& context)
    : sizes_(attention.spec().sizes),
      scale_(attention.spec().scale),
      interleaved_(attention.spec().interleaved),
      type_(context.type),
      turns_(context.rotary.For(attention.spec().rotary)),
      compress_(FindLinear(attention, "fused_qkv_a_proj", "kv_a_proj_with_mqa", path, context)),
      queries_of_(FindLinear(attention, "q_b_proj", "q_proj", path, context)),
      o_(ChildLinear(attention, "o_proj", path, context)),
      to_latent_(FindAbsorbed(attention, "W_UK_T", path, context)),
      to_value_(FindAbsorbed(attention, "W_UV", path, context)),
      q_norm_(FindChildNorm(attention, "q_a_layernorm", path, context)),
      kv_norm_(ChildNorm(attention, "kv_a_layernorm", path, context)),
      cache_(1, sizes_.kv_lora_rank + sizes_.qk_rope_head_dim, context) {}

at::Tensor TensorLatentAttention::Forward(const StepInputs& inputs, const at::Tensor& in) {
  const at::Tensor compressed = compress_.Apply(in);
  const std::int64_t of_queries = q_norm_ ? sizes_.q_lora_rank : 0;
  const at::Tensor latent = kv_norm_.Apply(compressed.narrow(1, of_queries, sizes_.kv_lora_rank)).unsqueeze(1);
  const at::Tensor key = compressed.narrow(1, of_queries + sizes_.kv_lora_rank, sizes_.qk_rope_head_dim).unsqueeze(1);
  cache_.Put(inputs, at::cat({latent, Turn(key, inputs.positions)}, -1));
  const at::Tensor queries = queries_of_.Apply(q_norm_ ? q_norm_->Apply(compressed.narrow(1, 0, of_queries)) : in)
                                 .unflatten(1, {sizes_.num_heads, -1});
  const at::Tensor attended = Rounded(Attend(inputs, InLatentSpace(queries, inputs.positions)), type_);
  return o_.Apply(Rounded(TimesOwnMatrix(attended, to_value_), type_).flatten(1));
}

// Pairs that are interleaved are first split into halves, for queries and keys alike, so that their products stay the
// same.
at::Tensor TensorLatentAttention::Turn(const at::Tensor& parts, const at::Tensor& positions) const {
  const at::Tensor apart = interleaved_ ? parts.unflatten(-1, {-1, 2}).transpose(-1, -2).flatten(-2) : parts;
  return Turned(apart, turns_, positions, type_);
}

at::Tensor TensorLatentAttention::InLatentSpace(const at::Tensor& queries, const at::Tensor& positions) const {
  const at::Tensor latent = TimesOwnMatrix(queries.narrow(2, 0, sizes_.qk_nope_head_dim), to_latent_);
  const at::Tensor turned = Turn(queries.narrow(2, sizes_.qk_nope_head_dim, sizes_.qk_rope_head_dim), positions);
  return at::cat({Rounded(latent, type_), turned}, -1);
}

at::Tensor TensorLatentAttention::Attend(const StepInputs& inputs, const at::Tensor& queries) const {
  const at::Tensor unseen = cache_.Unseen(inputs, 0);  // [rows, max_tokens]
  // Unseen positions may hold NaN, left by an earlier sequence: 0 times NaN would reach the result.
  const at::Tensor cached = cache_.Of(inputs).squeeze(1).masked_fill_(unseen.unsqueeze(-1), 0.0);
  at::Tensor scores = at::matmul(queries, cached.transpose(-1, -2)).mul_(scale_);
  scores.masked_fill_(unseen.unsqueeze(1), -std::numeric_limits<double>::infinity());
  return at::matmul(at::softmax(scores, -1), cached.narrow(-1, 0, sizes_.kv_lora_rank));
}

}  // namespace layercast
