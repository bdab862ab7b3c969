#include "engine_side/engine/torch/graph_decoder.h"

#include <algorithm>
#include <string>
#include <unordered_set>
#include <utility>

#include "engine_side/adapters/adapter_slots.h"
#include "layercast/error.h"

namespace layercast {

GraphDecoder::GraphDecoder(const Module& model, const ParallelConfig& parallel, std::span<const CapturedBuffer> buffers,
                           RopeFunction make_rope, const StepShape& shape, const AdapterSlots* adapters)
    : graph_(model, parallel, buffers, std::move(make_rope), shape, DecodeGraph::Mode::kReplay, adapters),
      lengths_(graph_.vocab_size(), static_cast<std::size_t>(graph_.shape().max_tokens),
               adapters == nullptr ? 0 : adapters->sizes().slots) {
  for (std::int64_t slot = shape.slots; slot-- > 0;) free_slots_.push_back(slot);  // slot 0 is given first
}

Logits GraphDecoder::Forward(std::span<const SequenceStep> steps) {
  lengths_.Check(steps);
  CheckRoom(steps);
  const std::vector<Row> rows = RowsOf(steps);
  const auto wanted =
      static_cast<std::size_t>(std::ranges::count_if(rows, [](const Row& row) { return row.logits.has_value(); }));
  Logits logits{graph_.vocab_size(), std::vector<float>(wanted * graph_.vocab_size())};
  const auto most = static_cast<std::size_t>(graph_.shape().rows);
  for (std::size_t begin = 0, end = 0; begin < rows.size(); begin = end) {
    while (end < rows.size() && end - begin < most && rows[end].turn == rows[begin].turn) ++end;
    Run(std::span(rows).subspan(begin, end - begin), logits);
  }
  return logits;
}

void GraphDecoder::Run(std::span<const Row> rows, Logits& logits) {
  std::vector<DecodeRow> step;
  for (const Row& row : rows) step.push_back(row.row);
  const Logits all = graph_.Run(step);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].logits) continue;
    std::ranges::copy(all.row(i),
                      logits.values.begin() + static_cast<std::ptrdiff_t>(*rows[i].logits * all.vocab_size));
  }
}

void GraphDecoder::CheckRoom(std::span<const SequenceStep> steps) const {
  std::unordered_set<std::uint64_t> beginning;
  for (const SequenceStep& step : steps) {
    if (slots_.contains(step.sequence)) continue;
    beginning.insert(step.sequence);
    if (beginning.size() <= free_slots_.size()) continue;
    throw Error(ErrorCode::kResourceExhausted, "sequence " + std::to_string(step.sequence) +
                                                   " has no slot: the decode graph holds " +
                                                   std::to_string(graph_.shape().slots) + " sequences at once");
  }
}

std::vector<GraphDecoder::Row> GraphDecoder::RowsOf(std::span<const SequenceStep> steps) {
  std::vector<Row> rows;
  std::unordered_map<std::int64_t, std::size_t> turns;  // by slot; with recurrent layers a turn has one token of each
  std::size_t wanted = 0;
  for (const SequenceStep& step : steps) {
    const std::int64_t slot = SlotOf(step.sequence);
    std::size_t& length = lengths_.Of(step.sequence);
    for (std::size_t i = 0; i < step.tokens.size(); ++i) {
      Row& row = rows.emplace_back();
      row.row = {.slot = slot,
                 .position = static_cast<std::int64_t>(length++),
                 .token = step.tokens[i],
                 .adapter = step.adapter};
      if (graph_.is_recurrent()) row.turn = turns[slot]++;
      if (step.all_logits || i + 1 == step.tokens.size()) row.logits = wanted++;
    }
  }
  std::ranges::stable_sort(rows, {}, &Row::turn);
  return rows;
}

std::int64_t GraphDecoder::SlotOf(std::uint64_t sequence) {
  if (const auto found = slots_.find(sequence); found != slots_.end()) return found->second;
  const std::int64_t slot = free_slots_.back();
  free_slots_.pop_back();
  slots_.emplace(sequence, slot);
  return slot;
}

void GraphDecoder::Drop(std::uint64_t sequence) {
  lengths_.Drop(sequence);
  const auto found = slots_.find(sequence);
  if (found == slots_.end()) return;
  free_slots_.push_back(found->second);
  slots_.erase(found);
}

void GraphDecoder::DropAll() {
  lengths_.DropAll();
  for (const auto& [sequence, slot] : slots_) free_slots_.push_back(slot);
  slots_.clear();
}

}  // namespace layercast
