#include "engine_side/engine/torch/blocks/tensor_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>

#include <limits>

namespace layercast {

TensorAttention::TensorAttention(const AttentionDescription& description, const TensorContext& context)
    : spec_(description.spec),
      query_stride_(description.query_stride()),
      type_(context.type),
      qkv_(description.qkv_proj, context.device),
      o_(description.o_proj, context.device),
      q_norm_(IfAny<TensorNorm>(description.q_norm, context.device)),
      k_norm_(IfAny<TensorNorm>(description.k_norm, context.device)),
      sinks_(IfAny<WeightTensor>(description.sinks, context.device)),
      turns_(context.rotary.For(description.rotary)),
      keys_(spec_.heads.num_kv_heads, spec_.heads.head_dim, context),
      values_(spec_.heads.num_kv_heads, spec_.heads.head_dim, context) {}

at::Tensor TensorAttention::Forward(const StepInputs& inputs, const at::Tensor& in) {
  const std::int64_t heads = spec_.heads.num_heads, kv_heads = spec_.heads.num_kv_heads, dim = spec_.heads.head_dim;
  const std::int64_t queries_end = heads * query_stride_;
  const at::Tensor qkv = qkv_.Apply(inputs, in);
  const at::Tensor queries = qkv.narrow(1, 0, queries_end).unflatten(1, {heads, -1});  // with their gates
  const at::Tensor keys_and_values = qkv.narrow(1, queries_end, 2 * kv_heads * dim).unflatten(1, {2, kv_heads, dim});
  keys_.Put(inputs, Prepared(keys_and_values.select(1, 0), k_norm_, inputs.positions));
  values_.Put(inputs, keys_and_values.select(1, 1));
  at::Tensor out = Rounded(Attend(inputs, Prepared(queries.narrow(2, 0, dim), q_norm_, inputs.positions)), type_);
  if (spec_.output_gate) out = Rounded(out * Rounded(at::sigmoid(queries.narrow(2, dim, dim)), type_), type_);
  return o_.Apply(inputs, out.flatten(1));
}

at::Tensor TensorAttention::Prepared(const at::Tensor& heads, const std::optional<TensorNorm>& norm,
                                     const at::Tensor& positions) const {
  const at::Tensor normed =
      norm ? norm->Apply(heads.reshape({heads.size(0), -1, norm->size()})).view(heads.sizes()) : heads;
  return turns_.cos.defined() ? Turned(normed, turns_, positions, type_) : normed;
}

at::Tensor TensorAttention::Attend(const StepInputs& inputs, const at::Tensor& queries) const {
  const at::Tensor unseen = keys_.Unseen(inputs, spec_.sliding_window).unsqueeze(1);  // [rows, 1, max_tokens]
  // Unseen positions may hold NaN, left by an earlier sequence: 0 times NaN would reach the result.
  const at::Tensor values = values_.Of(inputs).masked_fill_(unseen.unsqueeze(-1), 0.0);
  const at::Tensor grouped = queries.unflatten(1, {spec_.heads.num_kv_heads, -1});
  at::Tensor scores = at::matmul(grouped, keys_.Of(inputs).transpose(-1, -2)).mul_(spec_.scale);
  if (spec_.logit_softcap > 0.0) scores.div_(spec_.logit_softcap).tanh_().mul_(spec_.logit_softcap);
  scores.masked_fill_(unseen.unsqueeze(1), -std::numeric_limits<double>::infinity());
  return at::matmul(Softmax(scores), values).flatten(1, 2);
}

// A head's sink is a score that belongs to no position: it takes its share of the softmax but adds no value.
at::Tensor TensorAttention::Softmax(const at::Tensor& scores) const {
  if (!sinks_) return at::softmax(scores, -1);
  const at::Tensor sinks = sinks_->ReadVector().view({1, scores.size(1), -1, 1}).expand({scores.size(0), -1, -1, 1});
  return at::softmax(at::cat({scores, sinks}, -1), -1).narrow(-1, 0, scores.size(-1));
}

}  // namespace layercast
