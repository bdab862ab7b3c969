// `--load-format mistral`: consolidated*.safetensors with params.json, as Mistral publishes its models. Names become
// Hugging Face's, and the rows of q and k are put where those expect them.
#include "src/checkpoint/formats/mistral_loader.h"

#include <array>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "src/base/bytes/python_json.h"
#include "src/base/utf8.h"
#include "src/checkpoint/llama_names.h"
#include "src/checkpoint/safetensors/safetensors_file.h"

namespace layercast {
namespace {

constexpr std::pair<std::string_view, std::string_view> kInLayer[] = {
    {"attention.wq", "self_attn.q_proj"},  {"attention.wk", "self_attn.k_proj"},
    {"attention.wv", "self_attn.v_proj"},  {"attention.wo", "self_attn.o_proj"},
    {"attention_norm", "input_layernorm"}, {"ffn_norm", "post_attention_layernorm"},
    {"feed_forward.w1", "mlp.gate_proj"},  {"feed_forward.w2", "mlp.down_proj"},
    {"feed_forward.w3", "mlp.up_proj"},
};
constexpr std::pair<std::string_view, std::string_view> kMixture[] = {
    {"feed_forward.gate", "block_sparse_moe.gate"},
    {"feed_forward.experts.*.w1", "block_sparse_moe.experts.*.w1"},
    {"feed_forward.experts.*.w2", "block_sparse_moe.experts.*.w2"},
    {"feed_forward.experts.*.w3", "block_sparse_moe.experts.*.w3"},
};
constexpr std::pair<std::string_view, std::string_view> kOutside[] = {
    {"tok_embeddings", "model.embed_tokens"}, {"norm", "model.norm"}, {"output", "lm_head"}};
constexpr NameTable kNames = {"layers.", kInLayer, kMixture, kOutside};

std::int64_t Heads(const nlohmann::json& params, const char* key, const std::string& subject) {
  const bool fits = params.contains(key) && params[key].is_number_unsigned() &&
                    params[key].get<std::uint64_t>() <= std::numeric_limits<std::int32_t>::max();
  if (fits && params[key].get<std::int64_t>() > 0) return params[key].get<std::int64_t>();
  throw Error(ErrorCode::kCorrupt, subject + ": " + key + ": expected a number of heads, got " +
                                       (params.contains(key) ? ShownJson(params[key]) : "nothing"));
}

// What params.json says. Value.
struct Params {
  HeadCounts heads;
  std::string config;  // see TensorFile::config
};

// By the names of config.json. What takes part in no computation here, and sizes that the tensors have, are left out.
std::string ConfigOf(const nlohmann::json& params, const HeadCounts& heads) {
  nlohmann::json config = {{"num_attention_heads", heads.heads.number}, {"num_key_value_heads", heads.kv_heads.number}};
  const auto take = [&](const nlohmann::json& from, const char* name, const char* field) {
    if (from.contains(name) && from[name].is_number()) config[field] = from[name];
  };
  take(params, "head_dim", "head_dim");
  take(params, "norm_eps", "rms_norm_eps");
  take(params, "rope_theta", "rope_theta");
  take(params, "sliding_window", "sliding_window");
  if (params.contains("moe")) take(params["moe"], "num_experts_per_tok", "num_experts_per_tok");
  return config.dump();
}

Params ReadParams(const std::filesystem::path& path) {
  const std::string subject = Quote(path.native());
  const MappedFile file(path);
  const auto* const text = reinterpret_cast<const char*>(file.bytes().data());
  const auto params = ParsePythonJson<nlohmann::json>({text, file.bytes().size()});
  if (!params.is_object())
    throw Error(ErrorCode::kCorrupt,
                subject + ": expected a JSON object of at most " + std::to_string(kDeepestJson) + " levels");
  HeadCounts read{.file = subject, .heads = {"n_heads", Heads(params, "n_heads", subject)}, .kv_heads = {}};
  const bool grouped = params.contains("n_kv_heads");
  read.kv_heads = grouped ? HeadCounts::Count{"n_kv_heads", Heads(params, "n_kv_heads", subject)} : read.heads;
  std::string config = ConfigOf(params, read);
  return {std::move(read), std::move(config)};
}

class MistralFile final : public SafetensorsFile {
 public:
  explicit MistralFile(const std::filesystem::path& path)
      : SafetensorsFile(path), params_(ReadParams(path.parent_path() / "params.json")) {
    for (const SafetensorsHeader::Stored& stored : tensors()) {
      const std::optional<std::string> name = ToHuggingFace(stored.spec.name, kNames);
      if (!name) {
        throw Error(
            ErrorCode::kUnsupported,
            Quote(path.native()) + ": tensor " + Quote(stored.spec.name) +
                ": expected a name of Mistral's and Mixtral's models (layers.0.attention.wq.weight), got this one");
      }
      specs_.push_back({*name, stored.spec.dtype, stored.spec.shape});
    }
  }

  const TensorSpec& spec(std::size_t index) const override { return specs_.at(index); }

  NamedTensor Read(std::size_t index) const override {
    NamedTensor named = SafetensorsFile::Read(index);
    named.name = specs_.at(index).name;
    if (IsQueryOrKey(named.name, "q_proj"))
      return RowsInHalves(named, params_.heads.heads.number, Quote(path().native()));
    if (IsQueryOrKey(named.name, "k_proj"))
      return RowsInHalves(named, params_.heads.kv_heads.number, Quote(path().native()));
    return named;
  }

  const HeadCounts* head_counts() const override { return &params_.heads; }
  std::string config() const override { return params_.config; }

 private:
  const Params params_;
  std::vector<TensorSpec> specs_;
};

class MistralLoader final : public Loader {
 public:
  std::string_view index_name() const override { return "consolidated.safetensors.index.json"; }

  // A name that is none of Mistral's is that of no tensor, and stays for the message.
  std::string NameOf(std::string_view in_index) const override {
    return ToHuggingFace(in_index, kNames).value_or(std::string(in_index));
  }

  std::vector<std::string> Choose(const std::vector<std::string>& names) const override {
    std::vector<std::string> chosen;
    for (const std::string& name : names) {
      if (name.starts_with("consolidated") && name.ends_with(".safetensors")) chosen.push_back(name);
    }
    return chosen;
  }

  std::shared_ptr<const TensorFile> Open(const std::filesystem::path& file) const override {
    return std::make_shared<const MistralFile>(file);
  }
};

}  // namespace

std::unique_ptr<const Loader> MakeMistralLoader() { return std::make_unique<const MistralLoader>(); }

}  // namespace layercast
