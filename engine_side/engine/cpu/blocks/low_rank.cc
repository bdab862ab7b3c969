#include "engine_side/engine/cpu/blocks/low_rank.h"

#include <algorithm>

#include "engine_side/engine/cpu/kernels/row_kernels.h"
#include "engine_side/engine/cpu/kernels/row_linear.h"
#include "src/base/check.h"

namespace layercast {
namespace {

// The columns of A that a term of this rank needs, or its rows if it is looked up; and those of B. What lies beyond is
// not read.
WeightView FactorA(const AdapterOperand& adapter, const AdapterTerm& term, std::size_t rank, const std::byte* values) {
  const std::size_t columns = Size(term.columns);
  const AdapterSlotSizes& sizes = adapter.slots->sizes();
  if (!term.lookup) return {.values = values, .dtype = sizes.dtype, .rows = rank, .cols = columns};
  return {.values = values,
          .dtype = sizes.dtype,
          .rows = columns,
          .cols = rank,
          .scale = {},
          .stride = Size(sizes.max_rank)};
}

WeightView FactorB(const AdapterOperand& adapter, const AdapterTerm& term, std::size_t rank, const std::byte* values) {
  const AdapterSlotSizes& sizes = adapter.slots->sizes();
  return {.values = values,
          .dtype = sizes.dtype,
          .rows = Size(term.rows),
          .cols = rank,
          .scale = {},
          .stride = Size(sizes.max_rank)};
}

Activations Gathered(const Activations& x, std::span<const std::size_t> rows) {
  Activations gathered(rows.size(), x.cols());
  for (std::size_t i = 0; i < rows.size(); ++i) std::ranges::copy(x[rows[i]], gathered.row(i));
  return gathered;
}

}  // namespace

SlotGroups GroupBySlot(std::span<const TokenRow> rows) {
  SlotGroups groups;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].adapter < 0) continue;
    const auto slot = static_cast<std::size_t>(rows[i].adapter);
    auto group = std::ranges::find(groups, slot, &SlotGroup::slot);
    if (group == groups.end()) group = groups.insert(group, SlotGroup{.slot = slot, .rows = {}});
    group->rows.push_back(i);
  }
  return groups;
}

std::vector<LowRankTerm> TermsOf(const AdapterOperand& adapter, const SlotGroups& groups) {
  std::vector<LowRankTerm> terms;
  for (const SlotGroup& group : groups) {
    for (std::size_t i = adapter.first; i < adapter.first + adapter.count; ++i) {
      const AdapterNumbers& numbers = adapter.slots->NumbersOf(i, group.slot, adapter.expert);
      if (numbers.rank <= 0) continue;
      LAYERCAST_CHECK(numbers.rank <= adapter.slots->sizes().max_rank);
      const AdapterTerm& term = adapter.slots->terms()[i];
      const auto rank = static_cast<std::size_t>(numbers.rank);
      terms.push_back({.group = &group,
                       .term = &term,
                       .a = FactorA(adapter, term, rank, adapter.slots->A(i, group.slot, adapter.expert)),
                       .b = FactorB(adapter, term, rank, adapter.slots->B(i, group.slot, adapter.expert)),
                       .scale = numbers.scale});
    }
  }
  return terms;
}

LowRank::LowRank(const AdapterOperand& adapter, const SlotGroups& groups) {
  for (const LowRankTerm& term : TermsOf(adapter, groups)) {
    parts_.push_back({term, Activations(term.group->rows.size(), term.b.cols)});
  }
}

void LowRank::Shrink(const Activations& x) {
  const SlotGroup* gathered_for = nullptr;
  Activations gathered;
  for (Part& part : parts_) {
    const bool all = part.group->rows.size() == x.rows();
    if (!all && gathered_for != part.group) gathered = Gathered(x, part.group->rows);
    gathered_for = part.group;
    Multiply(all ? x : gathered, part.a, part.h);
  }
}

void LowRank::LookUp(std::span<const TokenRow> rows, const VocabRange& range) {
  for (Part& part : parts_) {
    for (std::size_t i = 0; i < part.group->rows.size(); ++i) {
      const std::int64_t token = rows[part.group->rows[i]].token;
      if (token < range.org_begin || token >= range.org_end) continue;
      ReadPaddedRow(part.a, Size(token - range.org_begin), part.h.row(i));
    }
  }
}

void LowRank::SumOver(Collective& collective) {
  if (parts_.size() == 1) return collective.AllReduceSum(parts_.front().h.values());
  std::vector<float> all;
  for (const Part& part : parts_) all.insert(all.end(), part.h.values().begin(), part.h.values().end());
  collective.AllReduceSum(all);
  auto from = all.begin();
  for (Part& part : parts_) {
    const std::span<float> h = part.h.values();
    std::copy_n(from, h.size(), h.begin());
    from += std::ssize(h);
  }
}

void LowRank::AddTo(DType dtype, Activations& y, float factor) const {
  Activations delta;
  for (const Part& part : parts_) {
    delta.Reset(part.h.rows(), part.b.rows);
    Multiply(part.h, part.b, delta);
    for (std::size_t i = 0; i < part.h.rows(); ++i) {
      AddScaled(factor * part.scale, delta[i], dtype,
                y[part.group->rows[i]].subspan(Size(part.term->first_row), part.b.rows));
    }
  }
}

}  // namespace layercast
