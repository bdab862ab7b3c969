// `--load-format gguf`: llama.cpp's files of models of the Llama family, whole or split. F32, F16 and BF16 tensors come
// as they are. Q8_0 blocks become fp32 values, exactly, which loading then casts to the model's dtype as usual. A
// tensor of all experts comes as one tensor for each expert.
#include "src/checkpoint/gguf/gguf_loader.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "src/base/utf8.h"
#include "src/checkpoint/gguf/gguf_header.h"
#include "src/checkpoint/gguf/gguf_split.h"
#include "src/checkpoint/llama_names.h"
#include "src/checkpoint/owned_tensor.h"
#include "src/tensor/cast.h"

namespace layercast {
namespace {

constexpr std::pair<std::string_view, std::string_view> kInLayer[] = {
    {"attn_q", "self_attn.q_proj"},      {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},      {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"}, {"attn_k_norm", "self_attn.k_norm"},
    {"attn_norm", "input_layernorm"},    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
};
constexpr std::pair<std::string_view, std::string_view> kOutside[] = {
    {"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"}};
constexpr std::pair<std::string_view, std::string_view> kMixtral[] = {
    {"ffn_gate_inp", "block_sparse_moe.gate"},
    {"ffn_gate_exps", "block_sparse_moe.experts.*.w1"},
    {"ffn_down_exps", "block_sparse_moe.experts.*.w2"},
    {"ffn_up_exps", "block_sparse_moe.experts.*.w3"},
};
constexpr std::pair<std::string_view, std::string_view> kQwenMoe[] = {
    {"ffn_gate_inp", "mlp.gate"},
    {"ffn_gate_exps", "mlp.experts.*.gate_proj"},
    {"ffn_down_exps", "mlp.experts.*.down_proj"},
    {"ffn_up_exps", "mlp.experts.*.up_proj"},
    {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"},
    {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
    {"ffn_down_shexp", "mlp.shared_expert.down_proj"},
    {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
};
// The row that weighs a shared expert. llama.cpp drops its dimension of size one.
constexpr std::string_view kSqueezed = ".ffn_gate_inp_shexp.weight";

constexpr std::string_view kArchitectures[] = {"llama", "qwen2", "qwen2moe", "qwen3", "qwen3moe"};

// Rotary frequencies are skipped, because they are computed from config.json.
constexpr std::string_view kComputed = "rope_freqs.weight";

constexpr std::int64_t kMostExperts = 65536;  // as a config.json may have

// What a file says of the whole model. In a split model, the first file says it for all. Value.
struct Architecture {
  NameTable names;
  bool interleaved = false;  // q and k are in llama.cpp's order of rows
  HeadCounts heads;
  std::string config;  // see TensorFile::config
};

// A number that a file holds in fp32, in as few digits as name it: 1e-05 as in a config.json, not 9.99999975e-06.
double InFewDigits(float number) {
  char digits[32];
  const auto end = std::to_chars(std::begin(digits), std::end(digits), number).ptr;
  double value = 0;
  std::from_chars(std::begin(digits), end, value);
  return value;
}

// What the entries of architecture `name` say, by the names of config.json. llama.cpp computes with a base of 10000
// where a file names none. What takes part in no computation here, and sizes that the tensors have, are left out.
std::string ConfigOf(const GgufHeader& header, const std::string& name, const HeadCounts& heads) {
  const auto number = [&](const char* key) {
    const auto found = header.numbers.find(name + key);
    return found == header.numbers.end() ? nlohmann::json() : nlohmann::json(found->second);
  };
  const auto real = [&](const char* key) {
    const auto found = header.floats.find(name + key);
    return found == header.floats.end() ? nlohmann::json() : nlohmann::json(InFewDigits(found->second));
  };
  nlohmann::json config = {{"num_attention_heads", heads.heads.number},
                           {"num_key_value_heads", heads.kv_heads.number},
                           {"head_dim", number(".attention.key_length")},
                           {"rms_norm_eps", real(".attention.layer_norm_rms_epsilon")},
                           {"num_experts_per_tok", number(".expert_used_count")},
                           {"rope_theta", real(".rope.freq_base")}};
  if (config["rope_theta"].is_null()) config["rope_theta"] = 10000.0;
  const auto scaling = header.texts.find(name + ".rope.scaling.type");
  if (scaling != header.texts.end() && (scaling->second == "linear" || scaling->second == "yarn")) {
    config["rope_scaling"] = {
        {"rope_type", scaling->second}, {"rope_theta", config["rope_theta"]}, {"factor", real(".rope.scaling.factor")}};
    if (scaling->second == "yarn") {
      config["rope_scaling"]["original_max_position_embeddings"] = number(".rope.scaling.original_context_length");
    }
  }
  for (auto field = config.begin(); field != config.end();) {
    field = field->is_null() ? config.erase(field) : std::next(field);
  }
  return config.dump();
}

Architecture ReadArchitecture(const GgufHeader& header, const std::string& subject) {
  const std::string name = header.Text("general.architecture", subject);
  if (std::ranges::find(kArchitectures, name) == std::end(kArchitectures)) {
    throw Error(
        ErrorCode::kUnsupported,
        subject + ": general.architecture: expected llama, qwen2, qwen2moe, qwen3 or qwen3moe, got " + Quote(name));
  }
  const auto heads = [&](const std::string& field) {
    const std::uint64_t count = header.Number(field, subject);
    if (count >= 1 && count <= std::numeric_limits<std::int32_t>::max()) {
      return HeadCounts::Count{field, static_cast<std::int64_t>(count)};
    }
    throw Error(ErrorCode::kCorrupt,
                subject + ": " + field + ": expected a number of heads, got " + std::to_string(count));
  };
  const HeadCounts::Count count = heads(name + ".attention.head_count");
  const std::string grouped = name + ".attention.head_count_kv";
  const HeadCounts::Count kv_count = header.keys.contains(grouped) ? heads(grouped) : count;
  const bool llama = name == "llama";
  HeadCounts both{.file = subject, .heads = count, .kv_heads = kv_count};
  std::string config = ConfigOf(header, name, both);
  return {.names = {"blk.", kInLayer, llama ? NamePairs(kMixtral) : NamePairs(kQwenMoe), kOutside},
          .interleaved = llama,
          .heads = std::move(both),
          .config = std::move(config)};
}

DType DTypeOf(GgufType type) {
  if (type == GgufType::kF16) return DType::kF16;
  return type == GgufType::kBF16 ? DType::kBF16 : DType::kF32;
}

// Each element is scale times value, a product of 11 bits and 8, so fp32 holds it exactly.
void DequantizeQ8(const std::byte* blocks, std::int64_t elements, std::byte* destination) {
  for (std::int64_t block = 0; block < elements / kQ8BlockElements; ++block) {
    float scale = 0;
    Cast(DType::kF16, blocks, DType::kF32, reinterpret_cast<std::byte*>(&scale), 1);
    float values[kQ8BlockElements];
    for (std::size_t i = 0; i < std::size(values); ++i) {
      values[i] = scale * static_cast<float>(static_cast<std::int8_t>(blocks[2 + i]));
    }
    std::memcpy(destination, values, sizeof(values));
    blocks += kQ8BlockBytes;
    destination += sizeof(values);
  }
}

class GgufFile final : public TensorFile {
 public:
  explicit GgufFile(const std::filesystem::path& path)
      : TensorFile(path), subject_(Quote(path.native())), header_(ParseGguf(mapping().bytes(), subject_)) {
    architecture_ = ArchitectureOf(path);
    std::erase_if(header_.tensors, [](const auto& tensor) { return tensor.name == kComputed; });
    for (std::size_t i = 0; i < header_.tensors.size(); ++i) AddParts(i);
  }

  std::size_t num_tensors() const override { return specs_.size(); }
  const TensorSpec& spec(std::size_t index) const override { return specs_.at(index); }

  NamedTensor Read(std::size_t index) const override {
    NamedTensor values = ReadValues(index);
    if (!architecture_.interleaved) return values;
    if (IsQueryOrKey(values.name, "q_proj")) return RowsInHalves(values, architecture_.heads.heads.number, subject_);
    if (IsQueryOrKey(values.name, "k_proj")) return RowsInHalves(values, architecture_.heads.kv_heads.number, subject_);
    return values;
  }

  const HeadCounts* head_counts() const override { return &architecture_.heads; }
  std::string config() const override { return architecture_.config; }

 private:
  // One of the tensors that a stored tensor becomes: the tensor itself, or one of its experts.
  struct Part {
    std::size_t stored;
    std::int64_t expert;  // 0 if the tensor is not a stack of experts
  };

  void AddParts(std::size_t index) {
    const GgufHeader::Tensor& stored = header_.tensors[index];
    const std::optional<std::string> name = ToHuggingFace(stored.name, architecture_.names);
    if (!name) {
      throw Error(ErrorCode::kUnsupported, subject_ + ": tensor " + Quote(stored.name) +
                                               ": expected a name of a model of the Llama family, got this one");
    }
    TensorSpec spec{*name, DTypeOf(stored.type), stored.shape};
    if (stored.name.ends_with(kSqueezed) && spec.shape.size() == 1) spec.shape.insert(spec.shape.begin(), 1);
    const std::size_t star = name->find('*');
    if (star == name->npos) {
      parts_.push_back({index, 0});
      specs_.push_back(std::move(spec));
      return;
    }
    if (stored.shape.size() != 3 || stored.bytes == 0 || stored.shape[0] > kMostExperts) {  // empty: any number fits
      throw Error(ErrorCode::kCorrupt, subject_ + ": tensor " + Quote(stored.name) +
                                           ": expected a matrix of each expert, " + std::to_string(kMostExperts) +
                                           " at most, got " + ToString(stored.shape));
    }
    spec.shape.erase(spec.shape.begin());
    for (std::int64_t expert = 0; expert < stored.shape[0]; ++expert) {
      spec.name = *name;
      spec.name.replace(star, 1, std::to_string(expert));
      parts_.push_back({index, expert});
      specs_.push_back(spec);
    }
  }

  // In a split model, only the first part says it. The others have nothing but their tensors.
  Architecture ArchitectureOf(const std::filesystem::path& path) const {
    const std::optional<GgufSplit> split = GgufSplit::Of(path, header_, subject_);
    if (!split) return ReadArchitecture(header_, subject_);
    if (split->IsFirst()) {  // one check for all parts
      split->CheckComplete(header_, subject_);
      return ReadArchitecture(header_, subject_);
    }
    const std::string first = Quote(split->First().native());
    const MappedFile file(split->First());
    return ReadArchitecture(ParseGguf(file.bytes(), first), first);
  }

  NamedTensor ReadValues(std::size_t index) const {
    const TensorSpec& spec = specs_.at(index);
    const GgufHeader::Tensor& stored = header_.tensors[parts_[index].stored];
    const std::int64_t elements = spec.num_elements();
    const bool blocks = stored.type == GgufType::kQ80;  // a row has a whole number of blocks
    const std::int64_t size = blocks ? elements / kQ8BlockElements * kQ8BlockBytes : spec.num_bytes();
    const std::byte* const bytes = mapping().bytes().data() + stored.begin + parts_[index].expert * size;
    if (!blocks) {
      return {.name = spec.name,
              .tensor = {.dtype = spec.dtype, .shape = spec.shape, .data = bytes, .device = {}},
              .owner = nullptr};
    }
    mapping().Populate({bytes, static_cast<std::size_t>(size)});
    OwnedTensor values = MakeOwnedTensor(spec);
    DequantizeQ8(bytes, elements, values.bytes);
    return std::move(values.tensor);
  }

  const std::string subject_;
  GgufHeader header_;
  Architecture architecture_;
  std::vector<Part> parts_;        // of header_.tensors
  std::vector<TensorSpec> specs_;  // of parts_
};

class GgufLoader final : public Loader {
 public:
  std::vector<std::string> Choose(const std::vector<std::string>& names) const override {
    std::vector<std::string> chosen;
    for (const std::string& name : names) {
      if (name.ends_with(".gguf")) chosen.push_back(name);
    }
    return chosen;
  }

  std::shared_ptr<const TensorFile> Open(const std::filesystem::path& file) const override {
    return std::make_shared<const GgufFile>(file);
  }
};

}  // namespace

std::unique_ptr<const Loader> MakeGgufLoader() { return std::make_unique<const GgufLoader>(); }

}  // namespace layercast
