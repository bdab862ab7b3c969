#include "engine_side/engine/decoder.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <unordered_map>
#include <utility>

#include "layercast/error.h"
#include "src/base/check.h"

namespace layercast {
namespace {

constexpr std::size_t kPassTokens = 1024;  // bounds the scratch memory of a long prompt

std::vector<float> Vector(const WeightView& weight) {
  std::vector<float> values(weight.cols);
  ReadRow(weight, 0, values.data());
  return values;
}

std::span<float> Whole(Activations& x, std::size_t row) { return {x.row(row), x.cols()}; }
std::span<const float> Whole(const Activations& x, std::size_t row) { return {x.row(row), x.cols()}; }

}  // namespace

Decoder::Decoder(DecoderConfig config, const ParallelConfig& parallel, std::span<const CapturedBuffer> buffers,
                 Collective& collective)
    : config_(std::move(config)),
      parallel_(parallel),
      collective_(collective),
      weights_(DecoderWeights::Find(config_, parallel, buffers)),
      heads_(DecoderWeights::LocalHeads(config_, parallel)),
      kv_heads_(DecoderWeights::LocalKvHeads(config_, parallel)),
      cache_(config_.num_layers, kv_heads_, config_.head_dim, config_.max_tokens),
      rotary_(config_.inverse_frequencies, config_.rope_attention_factor, config_.dtype),
      query_(Padded(config_.head_dim)),
      head_out_(Padded(config_.head_dim)) {
  LAYERCAST_CHECK(collective.size() == parallel.tp_size && collective.rank() == parallel.tp_rank);
  LAYERCAST_CHECK(config_.inverse_frequencies.size() * 2 == config_.head_dim);
  LAYERCAST_CHECK(config_.windows.size() == config_.num_layers);
}

Logits Decoder::Forward(std::span<const SequenceStep> steps) {
  Check(steps);
  std::vector<Row> rows;
  Logits logits;
  logits.vocab_size = config_.vocab_size;
  for (const SequenceStep& step : steps) {
    const std::size_t begin = cache_.Length(step.sequence);
    cache_.Append(step.sequence, step.tokens.size());
    for (std::size_t i = 0; i < step.tokens.size(); ++i) {
      const bool last = i + 1 == step.tokens.size();
      rows.push_back({step.sequence, begin + i, step.tokens[i], last || step.all_logits});
    }
  }
  for (std::size_t begin = 0; begin < rows.size(); begin += kPassTokens) {
    Pass(std::span(rows).subspan(begin, std::min(kPassTokens, rows.size() - begin)), logits);
  }
  return logits;
}

void Decoder::Check(std::span<const SequenceStep> steps) const {
  std::unordered_map<std::uint64_t, std::size_t> lengths;
  for (const SequenceStep& step : steps) {
    const std::string name = "sequence " + std::to_string(step.sequence);
    if (step.tokens.empty()) throw Error(ErrorCode::kInvalidArgument, name + ": no tokens");
    for (const std::int32_t token : step.tokens) {
      if (token >= 0 && static_cast<std::size_t>(token) < config_.vocab_size) continue;
      throw Error(ErrorCode::kInvalidArgument, name + ": token " + std::to_string(token) +
                                                   " is outside the vocabulary of " +
                                                   std::to_string(config_.vocab_size));
    }
    auto [length, is_new] = lengths.try_emplace(step.sequence, cache_.Length(step.sequence));
    length->second += step.tokens.size();
    if (length->second > config_.max_tokens) {
      throw Error(ErrorCode::kResourceExhausted, name + " would be " + std::to_string(length->second) +
                                                     " tokens long, the model's limit is " +
                                                     std::to_string(config_.max_tokens));
    }
  }
}

void Decoder::Pass(std::span<const Row> rows, Logits& logits) {
  std::size_t end = 0;
  for (const Row& row : rows) end = std::max(end, row.position + 1);
  rotary_.GrowTo(end);
  Embed(rows);
  for (std::size_t layer = 0; layer < config_.num_layers; ++layer) {
    AttentionBlock(layer, rows);
    MlpBlock(layer);
  }
  AppendLogits(rows, logits);
}

void Decoder::Embed(std::span<const Row> rows) {
  hidden_.Reset(rows.size(), config_.hidden_size);
  const std::size_t first = weights_.embedding.rows * static_cast<std::size_t>(parallel_.tp_rank);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto token = static_cast<std::size_t>(rows[i].token);
    if (token >= first && token < first + weights_.embedding.rows) {
      ReadRow(weights_.embedding, token - first, hidden_.row(i));
    }
  }
  collective_.AllReduceSum(hidden_.values());  // exact: one rank has the row, the others zeros
}

void Decoder::AttentionBlock(std::size_t layer, std::span<const Row> rows) {
  const DecoderLayerWeights& weights = weights_.layers[layer];
  NormalizeRows(hidden_, weights.input_norm, normed_);
  ColumnParallel(normed_, weights.qkv, qkv_);
  q_norm_ = weights.q_norm ? Vector(*weights.q_norm) : std::vector<float>();
  k_norm_ = weights.k_norm ? Vector(*weights.k_norm) : std::vector<float>();
  for (std::size_t i = 0; i < rows.size(); ++i) PrepareHeads(layer, rows[i], Whole(qkv_, i));
  attended_.Reset(rows.size(), heads_ * config_.head_dim);
  for (std::size_t i = 0; i < rows.size(); ++i) AttendRow(layer, rows[i], Whole(qkv_, i), Whole(attended_, i));
  RowParallel(attended_, weights.o);
}

// Normalizes and rotates the row's queries and keys, and puts keys and values into the cache.
void Decoder::PrepareHeads(std::size_t layer, const Row& row, std::span<float> qkv) {
  const std::size_t dim = config_.head_dim;
  for (std::size_t head = 0; head < heads_ + kv_heads_; ++head) {
    const std::span<float> values = qkv.subspan(head * dim, dim);
    const std::vector<float>& norm = head < heads_ ? q_norm_ : k_norm_;
    if (!norm.empty()) RmsNorm(values, norm, config_.rms_norm_epsilon, config_.dtype, values);
    Rotate(values, rotary_.Cos(row.position), rotary_.Sin(row.position), config_.dtype);
  }
  for (std::size_t head = 0; head < kv_heads_; ++head) {
    const float* key = qkv.data() + (heads_ + head) * dim;
    const float* value = qkv.data() + (heads_ + kv_heads_ + head) * dim;
    std::copy_n(key, dim, cache_.Key(row.sequence, layer, row.position, head));
    std::copy_n(value, dim, cache_.Value(row.sequence, layer, row.position, head));
  }
}

void Decoder::AttendRow(std::size_t layer, const Row& row, std::span<const float> queries, std::span<float> out) {
  const std::size_t dim = config_.head_dim;
  const std::size_t window = config_.windows[layer];
  const std::size_t end = row.position + 1;
  const std::size_t begin = window == 0 || end <= window ? 0 : end - window;
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim)));
  for (std::size_t head = 0; head < heads_; ++head) {
    const std::size_t kv_head = head / (heads_ / kv_heads_);
    std::copy_n(queries.data() + head * dim, dim, query_.data());
    Attend(query_.data(), cache_.Keys(row.sequence, layer, kv_head, begin, end),
           cache_.Values(row.sequence, layer, kv_head, begin, end), scale, cache_.padded_head_dim(), scores_,
           head_out_.data());
    std::copy_n(head_out_.data(), dim, out.data() + head * dim);
  }
  RoundTo(config_.dtype, out);
}

void Decoder::MlpBlock(std::size_t layer) {
  const DecoderLayerWeights& weights = weights_.layers[layer];
  NormalizeRows(hidden_, weights.post_attention_norm, normed_);
  ColumnParallel(normed_, weights.gate_up, gate_up_);
  const std::size_t width = weights.down.weight.cols;
  gated_.Reset(hidden_.rows(), width);
  for (std::size_t i = 0; i < gated_.rows(); ++i) {
    const std::span<const float> gate_up(gate_up_.row(i), 2 * width);
    std::ranges::copy(gate_up.first(width), gated_.row(i));
    SiluMultiply(Whole(gated_, i), gate_up.last(width), config_.dtype);
  }
  RowParallel(gated_, weights.down);
}

void Decoder::AppendLogits(std::span<const Row> rows, Logits& logits) {
  const auto wanted = static_cast<std::size_t>(std::ranges::count(rows, true, &Row::wants_logits));
  if (wanted == 0) return;
  Activations last(wanted, config_.hidden_size);
  for (std::size_t i = 0, to = 0; i < rows.size(); ++i) {
    if (rows[i].wants_logits) std::copy_n(hidden_.row(i), config_.hidden_size, last.row(to++));
  }
  NormalizeRows(last, weights_.final_norm, normed_);
  Activations mine(wanted, weights_.lm_head.rows);
  Linear(normed_, weights_.lm_head, mine);
  std::vector<float> all(mine.values().size() * static_cast<std::size_t>(parallel_.tp_size));
  collective_.AllGather(mine.values(), all);
  const std::size_t vocab = config_.vocab_size;
  const std::size_t before = logits.values.size();
  logits.values.resize(before + wanted * vocab);
  for (std::size_t i = 0; i < wanted; ++i) {
    float* to = logits.values.data() + before + i * vocab;
    for (std::size_t first = 0, rank = 0; first < vocab; first += mine.cols(), ++rank) {
      const float* part = all.data() + rank * mine.values().size() + i * mine.stride();
      std::copy_n(part, std::min(mine.cols(), vocab - first), to + first);
    }
  }
}

void Decoder::NormalizeRows(const Activations& from, const WeightView& norm, Activations& to) {
  const std::vector<float> weight = Vector(norm);
  to.Reset(from.rows(), from.cols());
  for (std::size_t i = 0; i < from.rows(); ++i) {
    RmsNorm(Whole(from, i), weight, config_.rms_norm_epsilon, config_.dtype, Whole(to, i));
  }
}

void Decoder::ColumnParallel(const Activations& x, const LinearWeights& linear, Activations& y) {
  y.Reset(x.rows(), linear.weight.rows);
  Linear(x, linear.weight, y);
  AddBias(linear.bias, y);
  RoundTo(config_.dtype, y.values());
}

void Decoder::RowParallel(const Activations& x, const LinearWeights& linear) {
  sum_.Reset(x.rows(), linear.weight.rows);
  Linear(x, linear.weight, sum_);
  collective_.AllReduceSum(sum_.values());  // in fp32, before anything is rounded
  AddBias(linear.bias, sum_);               // every rank has the whole bias: added once, after the sum
  RoundTo(config_.dtype, sum_.values());
  const std::span<float> hidden = hidden_.values();
  for (std::size_t i = 0; i < hidden.size(); ++i) hidden[i] += sum_.values()[i];
  RoundTo(config_.dtype, hidden);
}

void Decoder::AddBias(const std::optional<WeightView>& bias, Activations& y) {
  if (!bias) return;
  const std::vector<float> values = Vector(*bias);
  for (std::size_t i = 0; i < y.rows(); ++i) {
    for (std::size_t c = 0; c < values.size(); ++c) y.row(i)[c] += values[c];
  }
}

}  // namespace layercast
