#include "engine_side/engine/torch/graph_decoder.h"

#include <algorithm>
#include <string>
#include <unordered_set>
#include <utility>

#include "layercast/error.h"

namespace layercast {

GraphDecoder::GraphDecoder(const Module& model, const ParallelConfig& parallel, std::span<const CapturedBuffer> buffers,
                           RopeFunction make_rope, const StepShape& shape)
    : graph_(model, parallel, buffers, std::move(make_rope), shape),
      lengths_(graph_.vocab_size(), static_cast<std::size_t>(graph_.shape().max_tokens)) {
  for (std::int64_t slot = shape.slots; slot-- > 0;) free_slots_.push_back(slot);  // the first is given first
}

Logits GraphDecoder::Forward(std::span<const SequenceStep> steps) {
  lengths_.Check(steps);
  CheckRoom(steps);
  const std::vector<Row> rows = RowsOf(steps);
  Logits logits;
  logits.vocab_size = graph_.vocab_size();
  const auto most = static_cast<std::size_t>(graph_.shape().rows);
  std::vector<DecodeRow> part;
  for (std::size_t begin = 0; begin < rows.size(); begin += most) {
    const auto now = std::span(rows).subspan(begin, std::min(most, rows.size() - begin));
    part.clear();
    for (const Row& row : now) part.push_back(row.row);
    const Logits all = graph_.Run(part);
    for (std::size_t i = 0; i < now.size(); ++i) {
      if (now[i].wanted) logits.values.insert(logits.values.end(), all.row(i).begin(), all.row(i).end());
    }
  }
  return logits;
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
  for (const SequenceStep& step : steps) {
    const std::int64_t slot = SlotOf(step.sequence);
    std::size_t& length = lengths_.Of(step.sequence);
    for (std::size_t i = 0; i < step.tokens.size(); ++i) {
      rows.push_back({.row = {.slot = slot, .position = static_cast<std::int64_t>(length++), .token = step.tokens[i]},
                      .wanted = step.all_logits || i + 1 == step.tokens.size()});
    }
  }
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
