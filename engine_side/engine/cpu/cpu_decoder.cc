#include "engine_side/engine/cpu/cpu_decoder.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine_side/engine/cpu/blocks/low_rank.h"
#include "engine_side/engine/cpu/blocks/row_norm.h"
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

Peers Checked(const Peers& peers, const ParallelConfig& parallel) {
  LAYERCAST_CHECK(peers.collective.size() == parallel.tp_size && peers.collective.rank() == parallel.tp_rank);
  LAYERCAST_CHECK((peers.stage_link != nullptr) == (parallel.pp_size > 1));
  // Experts are summed by the collective, so their ranks must be the collective's.
  if (parallel.ep_size != 1 && (parallel.ep_size != parallel.tp_size || parallel.ep_rank != parallel.tp_rank)) {
    throw Error(ErrorCode::kUnsupported, "expert parallelism: the built-in engine computes with ep_size 1 or tp_size " +
                                             std::to_string(parallel.tp_size) + ", got ep_size " +
                                             std::to_string(parallel.ep_size));
  }
  return peers;
}

}  // namespace

Decoder::Decoder(const Module& model, const ParallelConfig& parallel, std::span<const CapturedBuffer> buffers,
                 const Peers& peers, RopeFunction make_rope, std::optional<std::size_t> max_tokens,
                 const AdapterSlots* adapters)
    : Decoder(AsDecoder(model), parallel, buffers, peers, std::move(make_rope), max_tokens, adapters) {}

Decoder::Decoder(const DecoderForCausalLM& model, const ParallelConfig& parallel,
                 std::span<const CapturedBuffer> buffers, const Peers& peers, RopeFunction make_rope,
                 std::optional<std::size_t> max_tokens, const AdapterSlots* adapters)
    : peers_(Checked(peers, parallel)),
      is_first_stage_(parallel.pp_rank == 0),
      lengths_(static_cast<std::size_t>(model.vocab_size()), LongestSequence(model, max_tokens),
               adapters == nullptr ? 0 : adapters->sizes().slots),
      description_(DescribeDecoder(model, buffers, Device(), std::move(make_rope), "the built-in engine", adapters)) {
  const BlockContext context{peers.collective, description_.dtype};
  for (auto& [norm, block, post_norm] : std::exchange(description_.steps, {})) {
    steps_.push_back({norm, MakeBlock(std::move(block), context), post_norm});
  }
}

Decoder::~Decoder() = default;

Logits Decoder::Forward(std::span<const SequenceStep> steps) {
  lengths_.Check(steps);
  std::vector<TokenRow> rows;
  Logits logits;
  logits.vocab_size = Size(description_.vocab_size);
  for (const SequenceStep& step : steps) {
    std::size_t& length = lengths_.Of(step.sequence);
    for (std::size_t i = 0; i < step.tokens.size(); ++i) {
      const bool last = i + 1 == step.tokens.size();
      rows.push_back({step.sequence, length++, step.tokens[i], last || step.all_logits, step.adapter});
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
  hidden_.Reset(rows.size(), Size(description_.hidden_size));
  if (is_first_stage_) {
    Embed(rows);
  } else {
    peers_.stage_link->Receive(hidden_.values());
  }
  for (Step& step : steps_) Take(step, rows);
  if (description_.head) {
    AppendLogits(rows, logits);
  } else {
    peers_.stage_link->Send(hidden_.values());
  }
}

void Decoder::Embed(std::span<const TokenRow> rows) {
  const auto& [weight, range, scale, adapter] = *description_.embedding;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::int64_t token = rows[i].token;
    if (token < range.org_begin || token >= range.org_end) continue;
    ReadRow(weight, static_cast<std::size_t>(token - range.org_begin), hidden_.row(i));
  }
  peers_.collective.AllReduceSum(hidden_.values());  // exact: one rank has the row, the others zeros
  if (scale != 1.0F) {
    for (float& value : hidden_.values()) value *= scale;
    RoundTo(description_.dtype, hidden_.values());
  }
  const SlotGroups groups = GroupBySlot(rows);
  LowRank terms(adapter, groups);
  if (terms.empty()) return;
  terms.LookUp(rows, range);
  terms.SumOver(peers_.collective);
  terms.AddTo(description_.dtype, hidden_, scale);
}

void Decoder::Take(Step& step, std::span<const TokenRow> rows) {
  if (description_.residual_dtype == description_.dtype) {
    Normalize(step.norm, hidden_, normed_);
  } else {
    rounded_ = hidden_;
    RoundTo(description_.dtype, rounded_.values());
    Normalize(step.norm, rounded_, normed_);
  }
  step.block->Forward(rows, normed_, added_);
  if (step.post_norm) {
    Normalize(*step.post_norm, added_, normed_);
    std::swap(added_, normed_);
  }
  const std::span<float> hidden = hidden_.values();
  for (std::size_t i = 0; i < hidden.size(); ++i) hidden[i] += added_.values()[i];
  RoundTo(description_.residual_dtype, hidden);
}

void Decoder::AppendLogits(std::span<const TokenRow> rows, Logits& logits) {
  std::vector<TokenRow> wanted;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].wants_logits) continue;
    wanted.push_back(rows[i]);
    places.push_back(i);
  }
  if (wanted.empty()) return;
  Activations last(wanted.size(), hidden_.cols());
  for (std::size_t i = 0; i < places.size(); ++i) std::copy_n(hidden_.row(places[i]), hidden_.cols(), last.row(i));
  const Activations mine = ComputeHead(wanted, last);
  std::vector<float> all(mine.values().size() * static_cast<std::size_t>(peers_.collective.size()));
  peers_.collective.AllGather(mine.values(), all);
  const std::size_t before = logits.values.size(), vocab_size = logits.vocab_size;
  logits.values.resize(before + wanted.size() * vocab_size);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    float* to = logits.values.data() + before + i * vocab_size;
    for (std::size_t first = 0, rank = 0; first < vocab_size; first += mine.cols(), ++rank) {
      const float* part = all.data() + rank * mine.values().size() + i * mine.stride();
      std::copy_n(part, std::min(mine.cols(), vocab_size - first), to + first);
    }
  }
}

// This rank's logits of `rows`, whose residual stream is `hidden`.
Activations Decoder::ComputeHead(std::span<const TokenRow> rows, const Activations& hidden) {
  const auto& [norm, weight, logit_softcap, adapter] = *description_.head;
  Normalize(norm, hidden, normed_);
  RoundTo(description_.dtype, normed_.values());
  Activations mine(rows.size(), weight.rows);
  Multiply(normed_, weight, mine);
  const SlotGroups groups = GroupBySlot(rows);
  if (LowRank terms(adapter, groups); !terms.empty()) {
    terms.Shrink(normed_);
    terms.AddTo(DType::kF32, mine);
  }
  if (logit_softcap > 0.0) SoftCap(static_cast<float>(logit_softcap), mine.values());
  return mine;
}

}  // namespace layercast
