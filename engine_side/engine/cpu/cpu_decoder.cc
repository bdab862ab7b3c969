#include "engine_side/engine/cpu/cpu_decoder.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine_side/engine/cpu/decoder_parts.h"
#include "engine_side/engine/cpu/kernels/row_kernels.h"
#include "engine_side/engine/cpu/kernels/row_linear.h"
#include "layercast/error.h"
#include "src/base/check.h"

namespace layercast {
namespace {

constexpr std::size_t kPassTokens = 1024;  // bounds the scratch memory of a long prompt

std::size_t LongestSequence(const DecoderForCausalLM& model, std::optional<std::size_t> max_tokens) {
  const auto own = static_cast<std::size_t>(model.max_positions());
  return max_tokens ? std::min(own, *max_tokens) : own;
}

}  // namespace

Decoder::Decoder(const Module& model, const ParallelConfig& parallel, std::span<const CapturedBuffer> buffers,
                 const Peers& peers, RopeFunction make_rope, std::optional<std::size_t> max_tokens)
    : Decoder(AsKind<DecoderForCausalLM>(&model, "the model"), parallel, CapturedWeights(buffers), peers,
              std::move(make_rope), max_tokens) {}

Decoder::Decoder(const DecoderForCausalLM& model, const ParallelConfig& parallel, CapturedWeights weights,
                 const Peers& peers, RopeFunction make_rope, std::optional<std::size_t> max_tokens)
    : peers_(peers),
      dtype_(model.dtype()),
      residual_dtype_(model.options().fp32_residual ? DType::kF32 : dtype_),
      hidden_size_(static_cast<std::size_t>(model.hidden_size())),
      vocab_size_(static_cast<std::size_t>(model.vocab_size())),
      logit_softcap_(static_cast<float>(model.options().logit_softcap)),
      rotary_(std::move(make_rope), dtype_),
      is_first_stage_(parallel.pp_rank == 0),
      lengths_(vocab_size_, LongestSequence(model, max_tokens)) {
  LAYERCAST_CHECK(peers.collective.size() == parallel.tp_size && peers.collective.rank() == parallel.tp_rank);
  LAYERCAST_CHECK((peers.stage_link != nullptr) == (parallel.pp_size > 1));
  // Experts are summed by the collective, so their ranks must be the collective's.
  if (parallel.ep_size != 1 && (parallel.ep_size != parallel.tp_size || parallel.ep_rank != parallel.tp_rank)) {
    throw Error(ErrorCode::kUnsupported, "expert parallelism: the built-in engine computes with ep_size 1 or tp_size " +
                                             std::to_string(parallel.tp_size) + ", got ep_size " +
                                             std::to_string(parallel.ep_size));
  }
  FindEnds(model, weights);
  const BlockContext context{weights, rotary_, peers.collective, dtype_};
  for (const auto& [name, layer] : model.FindChild("model")->FindChild("layers")->children()) {
    if (layer->held_by().empty()) AddSteps(*layer, "model.layers." + name, context);
  }
  weights.CheckAllUsed();
}

Decoder::~Decoder() = default;

// Finds embedding and head. On the last stage an embedding is there for a tied head, or for a draft model, which is not
// computed here.
void Decoder::FindEnds(const DecoderForCausalLM& model, CapturedWeights& weights) {
  const Module& parts = *model.FindChild("model");
  if (parts.FindChild("embed_tokens")->held_by().empty()) {
    const VocabParallelEmbedding& embedding = EmbeddingOf(model);
    embedding_ = {weights.Find(embedding, "model.embed_tokens"), embedding.range(), EmbeddingScaleOf(model)};
  }
  if (!parts.FindChild("norm")->held_by().empty()) return;
  const std::optional<WeightView> own = FindHead(model, weights);
  head_ = {Norm(*parts.FindChild("norm"), "model.norm", weights), own ? *own : embedding_->rows};
}

void Decoder::AddSteps(const Module& layer, const std::string& path, const BlockContext& context) {
  for (const ResidualStep& step : AsKind<DecoderLayer>(&layer, path).steps()) {
    const auto norm = [&](const std::string& name) {
      return Norm(*layer.FindChild(name), path + "." + name, context.weights);
    };
    steps_.push_back({norm(step.norm), MakeBlock(*layer.FindChild(step.block), path + "." + step.block, context),
                      step.post_norm.empty() ? std::nullopt : std::optional(norm(step.post_norm))});
  }
}

Logits Decoder::Forward(std::span<const SequenceStep> steps) {
  lengths_.Check(steps);
  std::vector<TokenRow> rows;
  Logits logits;
  logits.vocab_size = vocab_size_;
  for (const SequenceStep& step : steps) {
    std::size_t& length = lengths_.Of(step.sequence);
    for (std::size_t i = 0; i < step.tokens.size(); ++i) {
      const bool last = i + 1 == step.tokens.size();
      rows.push_back({step.sequence, length++, step.tokens[i], last || step.all_logits});
    }
  }
  for (std::size_t begin = 0; begin < rows.size(); begin += kPassTokens) {
    Pass(std::span(rows).subspan(begin, std::min(kPassTokens, rows.size() - begin)), logits);
  }
  return logits;
}

void Decoder::Drop(std::uint64_t sequence) {
  lengths_.Drop(sequence);
  for (const Step& step : steps_) step.block->Drop(sequence);
}

void Decoder::DropAll() {
  lengths_.DropAll();
  for (const Step& step : steps_) step.block->DropAll();
}

void Decoder::Pass(std::span<const TokenRow> rows, Logits& logits) {
  hidden_.Reset(rows.size(), hidden_size_);
  if (is_first_stage_) {
    Embed(rows);
  } else {
    peers_.stage_link->Receive(hidden_.values());
  }
  for (Step& step : steps_) Take(step, rows);
  if (head_) {
    AppendLogits(rows, logits);
  } else {
    peers_.stage_link->Send(hidden_.values());
  }
}

void Decoder::Embed(std::span<const TokenRow> rows) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::int64_t token = rows[i].token;
    if (token < embedding_->range.org_begin || token >= embedding_->range.org_end) continue;
    ReadRow(embedding_->rows, static_cast<std::size_t>(token - embedding_->range.org_begin), hidden_.row(i));
  }
  peers_.collective.AllReduceSum(hidden_.values());  // exact: one rank has the row, the others zeros
  if (embedding_->scale == 1.0F) return;
  for (float& value : hidden_.values()) value *= embedding_->scale;
  RoundTo(dtype_, hidden_.values());
}

void Decoder::Take(Step& step, std::span<const TokenRow> rows) {
  if (residual_dtype_ == dtype_) {
    step.norm.Apply(hidden_, dtype_, normed_);
  } else {
    rounded_ = hidden_;
    RoundTo(dtype_, rounded_.values());
    step.norm.Apply(rounded_, dtype_, normed_);
  }
  step.block->Forward(rows, normed_, added_);
  if (step.post_norm) {
    step.post_norm->Apply(added_, dtype_, normed_);
    std::swap(added_, normed_);
  }
  const std::span<float> hidden = hidden_.values();
  for (std::size_t i = 0; i < hidden.size(); ++i) hidden[i] += added_.values()[i];
  RoundTo(residual_dtype_, hidden);
}

void Decoder::AppendLogits(std::span<const TokenRow> rows, Logits& logits) {
  const auto wanted = static_cast<std::size_t>(std::ranges::count(rows, true, &TokenRow::wants_logits));
  if (wanted == 0) return;
  Activations last(wanted, hidden_size_);
  for (std::size_t i = 0, to = 0; i < rows.size(); ++i) {
    if (rows[i].wants_logits) std::copy_n(hidden_.row(i), hidden_size_, last.row(to++));
  }
  head_->norm.Apply(last, residual_dtype_, normed_);
  RoundTo(dtype_, normed_.values());
  Activations mine(wanted, head_->rows.rows);
  Multiply(normed_, head_->rows, mine);
  if (logit_softcap_ > 0.0F) SoftCap(logit_softcap_, mine.values());
  std::vector<float> all(mine.values().size() * static_cast<std::size_t>(peers_.collective.size()));
  peers_.collective.AllGather(mine.values(), all);
  const std::size_t before = logits.values.size();
  logits.values.resize(before + wanted * vocab_size_);
  for (std::size_t i = 0; i < wanted; ++i) {
    float* to = logits.values.data() + before + i * vocab_size_;
    for (std::size_t first = 0, rank = 0; first < vocab_size_; first += mine.cols(), ++rank) {
      const float* part = all.data() + rank * mine.values().size() + i * mine.stride();
      std::copy_n(part, std::min(mine.cols(), vocab_size_ - first), to + first);
    }
  }
}

}  // namespace layercast
