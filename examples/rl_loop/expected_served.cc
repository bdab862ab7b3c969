#include "examples/rl_loop/expected_served.h"

#include <ATen/ATen.h>

#include <map>

#include "layercast/torch/adopt.h"

namespace rl_loop {
namespace {

constexpr std::int64_t kVocabularyPadding = 64;
constexpr double kFp8Max = 448;

// One rank's kernel tensors, gathered layer by layer.
class Rank {
 public:
  Rank(const Policy& policy, int rank, int size) : rank_(rank), size_(size) {
    const at::ScalarType dtype = policy.config().served_dtype == "bfloat16" ? at::kBFloat16 : at::kFloat;
    for (const auto& parameter : policy.named_parameters()) {
      source_[parameter.key()] = parameter.value().detach().to(dtype);
    }
  }

  void Copy(const std::string& name) { Add(name, source_.at(name)); }

  // Adds a vocabulary: its rows are padded with zeros, then divided among the ranks.
  void Vocabulary(const std::string& name) {
    const at::Tensor& weight = source_.at(name);
    const std::int64_t padding = (kVocabularyPadding - weight.size(0) % kVocabularyPadding) % kVocabularyPadding;
    Add(name, Part(at::constant_pad_nd(weight, {0, 0, 0, padding}), 0));
  }

  // Adds some linear layers side by side, each with this rank's rows.
  void Column(const std::string& layer, const std::vector<std::string>& parts, const std::string& fused) {
    std::vector<at::Tensor> weights;
    for (const std::string& part : parts) weights.push_back(Part(source_.at(layer + part + ".weight"), 0));
    const at::Tensor weight = at::cat(weights);
    Quantize(layer + fused, weight, weight);
  }

  // Adds this rank's columns of a linear layer. The scales are those of whole rows.
  void Row(const std::string& name) {
    const at::Tensor& whole = source_.at(name + ".weight");
    Quantize(name, Part(whole, 1), whole);
  }

  layercast::Digest Digest() const { return layercast::AdoptTensors(served_).ServedDigest(); }

 private:
  at::Tensor Part(const at::Tensor& whole, std::int64_t dimension) const {
    return whole.chunk(size_, dimension)[static_cast<std::size_t>(rank_)];
  }

  void Quantize(const std::string& name, const at::Tensor& weight, const at::Tensor& whole_rows) {
    const at::Tensor amax = whole_rows.to(at::kFloat).abs().amax(1, /*keepdim=*/true);
    const at::Tensor scale = (amax / kFp8Max).clamp_min(1 / (kFp8Max * 512));
    const at::Tensor values = (weight.to(at::kFloat) / scale).clamp(-kFp8Max, kFp8Max).to(at::kFloat8_e4m3fn);
    Add(name + ".weight", values);
    Add(name + ".weight_scale", scale);
  }

  void Add(const std::string& name, const at::Tensor& tensor) { served_.emplace_back(name, tensor.contiguous()); }

  const int rank_;
  const int size_;
  std::map<std::string, at::Tensor> source_;
  std::vector<layercast::NamedAtTensor> served_;
};

}  // namespace

layercast::Digest ExpectedServedDigest(const Policy& policy, int tp_rank, int tp_size) {
  Rank rank(policy, tp_rank, tp_size);
  rank.Vocabulary("model.embed_tokens.weight");
  rank.Vocabulary("lm_head.weight");
  rank.Copy("model.norm.weight");
  for (std::int64_t i = 0; i < policy.config().num_hidden_layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    rank.Copy(layer + "input_layernorm.weight");
    rank.Copy(layer + "post_attention_layernorm.weight");
    rank.Copy(layer + "self_attn.q_norm.weight");
    rank.Copy(layer + "self_attn.k_norm.weight");
    rank.Column(layer + "self_attn.", {"q_proj", "k_proj", "v_proj"}, "qkv_proj");
    rank.Row(layer + "self_attn.o_proj");
    rank.Column(layer + "mlp.", {"gate_proj", "up_proj"}, "gate_up_proj");
    rank.Row(layer + "mlp.down_proj");
  }
  return rank.Digest();
}

}  // namespace rl_loop
