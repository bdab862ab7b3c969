#include "engine_side/engine/torch/tensor_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "layercast/error.h"
#include "layercast/model/norm.h"

namespace layercast {
namespace {

const AttentionSpec& ComputedSpec(const Attention& attention, const std::string& path) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::kUnsupported, "the decode step in tensors cannot compute " + path + ": " + what);
  };
  if (attention.spec().sinks) refuse("attention sinks");
  if (attention.spec().output_gate) refuse("gated outputs");
  const Module* norm = attention.FindChild("q_norm");
  if (dynamic_cast<const ParallelRMSNorm*>(norm) != nullptr) refuse("norms over all heads");
  return attention.spec();
}

std::optional<TensorNorm> HeadNormOf(const Attention& attention, const char* name, const std::string& path,
                                     const TensorContext& context) {
  const Module* norm = attention.FindChild(name);
  if (norm == nullptr) return std::nullopt;
  return TensorNorm(*norm, path + "." + name, context.weights, context.device, context.type);
}

at::Tensor MakeCache(const AttentionHeads& heads, const TensorContext& context) {
  return at::zeros({(context.shape.slots + 1) * context.shape.max_tokens, heads.num_kv_heads, heads.head_dim},
                   at::TensorOptions(context.type).device(context.device));
}

}  // namespace

TensorAttention::TensorAttention(const Attention& attention, const std::string& path, const TensorContext& context)
    : spec_(ComputedSpec(attention, path)),
      shape_(context.shape),
      type_(context.type),
      qkv_(ChildLinear(attention, "qkv_proj", path, context)),
      o_(ChildLinear(attention, "o_proj", path, context)),
      q_norm_(HeadNormOf(attention, "q_norm", path, context)),
      k_norm_(HeadNormOf(attention, "k_norm", path, context)),
      all_positions_(at::arange(context.shape.max_tokens, at::TensorOptions(at::kLong).device(context.device))),
      keys_(MakeCache(spec_.heads, context)),
      values_(MakeCache(spec_.heads, context)) {
  if (spec_.rotary.dim != 0) turns_ = context.rotary.For(spec_.rotary);
}

at::Tensor TensorAttention::Forward(const StepInputs& inputs, const at::Tensor& in) {
  const std::int64_t heads = spec_.heads.num_heads;
  const std::int64_t kv_heads = spec_.heads.num_kv_heads;
  const at::Tensor qkv = qkv_.Apply(in).view({shape_.rows, heads + 2 * kv_heads, spec_.heads.head_dim});
  const at::Tensor queries = Prepared(qkv.narrow(1, 0, heads), q_norm_, inputs.positions);
  const at::Tensor keys = Prepared(qkv.narrow(1, heads, kv_heads), k_norm_, inputs.positions);
  const at::Tensor values = qkv.narrow(1, heads + kv_heads, kv_heads);
  // All rows' keys and values first: rows of one sequence see those before them, in one step or in several.
  const at::Tensor places = inputs.slots * shape_.max_tokens + inputs.positions;
  keys_.index_copy_(0, places, keys.to(type_));
  values_.index_copy_(0, places, values.to(type_));
  return o_.Apply(Attend(inputs, queries));
}

at::Tensor TensorAttention::Prepared(const at::Tensor& heads, const std::optional<TensorNorm>& norm,
                                     const at::Tensor& positions) const {
  const at::Tensor normed = norm ? norm->Apply(heads) : heads;
  return turns_.cos.defined() ? Turned(normed, positions) : normed;
}

// Pairs (i, i + dim / 2), each product and each sum rounded.
at::Tensor TensorAttention::Turned(const at::Tensor& heads, const at::Tensor& positions) const {
  const std::int64_t pairs = spec_.rotary.dim / 2;
  const at::Tensor cos = at::index_select(turns_.cos, 0, positions);
  const at::Tensor sin = at::index_select(turns_.sin, 0, positions);
  const at::Tensor first = heads.narrow(-1, 0, pairs);
  const at::Tensor second = heads.narrow(-1, pairs, pairs);
  const auto times = [&](const at::Tensor& x, const at::Tensor& y) { return Rounded(x * y, type_); };
  const at::Tensor rest = heads.narrow(-1, 2 * pairs, spec_.heads.head_dim - 2 * pairs);
  return at::cat({Rounded(times(first, cos) - times(second, sin), type_),
                  Rounded(times(second, cos) + times(first, sin), type_), rest},
                 -1);
}

at::Tensor TensorAttention::Unseen(const at::Tensor& positions) const {
  const at::Tensor last = positions.unsqueeze(1);
  const at::Tensor later = all_positions_ > last;
  return spec_.sliding_window == 0 ? later : later | (all_positions_ <= last - spec_.sliding_window);
}

at::Tensor TensorAttention::Attend(const StepInputs& inputs, const at::Tensor& queries) const {
  const std::int64_t kv_heads = spec_.heads.num_kv_heads;
  const at::Tensor unseen = Unseen(inputs.positions).unsqueeze(1);  // [rows, 1, max_tokens]
  const at::Tensor keys = Cached(keys_, inputs.slots);
  // Of a sequence that ended there, maybe of weights that made NaN: 0 times that would be seen.
  const at::Tensor values = Cached(values_, inputs.slots).masked_fill_(unseen.unsqueeze(-1), 0.0);
  const at::Tensor grouped = queries.reshape({shape_.rows, kv_heads, -1, spec_.heads.head_dim});
  at::Tensor scores = at::matmul(grouped, keys.transpose(-1, -2)).mul_(spec_.scale);
  if (spec_.logit_softcap > 0.0) scores.div_(spec_.logit_softcap).tanh_().mul_(spec_.logit_softcap);
  scores.masked_fill_(unseen.unsqueeze(1), -std::numeric_limits<double>::infinity());
  return Rounded(at::matmul(at::softmax(scores, -1), values).reshape({shape_.rows, -1}), type_);
}

at::Tensor TensorAttention::Cached(const at::Tensor& cache, const at::Tensor& slots) const {
  const at::Tensor by_slot = cache.view({shape_.slots + 1, shape_.max_tokens, spec_.heads.num_kv_heads, -1});
  return at::index_select(by_slot, 0, slots).to(at::kFloat).transpose(1, 2);
}

}  // namespace layercast
