// Adapter slots in host memory, and adapters of numbers that are functions of their places, so that ranks fit together
// and slots can be compared. For tests of what computes with them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine_side/adapters/adapter_slots.h"
#include "src/base/memory/counting_memory.h"
#include "src/tensor/element.h"

namespace layercast::testing {

// About normal, a function of its arguments.
inline float AdapterValue(const std::string& name, std::size_t seed, std::int64_t row, std::int64_t column) {
  std::uint64_t bits = std::hash<std::string>()(name) + seed * 0x9e3779b97f4a7c15U;
  bits ^= static_cast<std::uint64_t>(row) * 0xc2b2ae3d27d4eb4fU ^ static_cast<std::uint64_t>(column) << 40;
  double sum = 0.0;
  for (int i = 0; i < 4; ++i) {
    bits = (bits ^ (bits >> 29)) * 0xbf58476d1ce4e5b9U;
    bits ^= bits >> 32;
    sum += static_cast<double>(bits >> 11) * 0x1.0p-53 - 0.5;
  }
  return static_cast<float>(sum * 1.7);
}

// Which adapter a slot is filled with. Value.
struct FilledWith {
  std::size_t seed = 1;
  std::int32_t rank = 4;
  float scale = 0.5F;
  std::function<bool(const AdapterTerm&)> has = [](const AdapterTerm&) { return true; };  // for other terms: rank 0
};

// Resource: owns the memory. All begins with zeros.
class FilledSlots {
 public:
  // Which row, column and expert of the whole weight those of a term are.
  using Place = std::function<std::int64_t(const AdapterTerm& term, std::int64_t index)>;

  FilledSlots(std::vector<AdapterTerm> terms, const AdapterSlotSizes& sizes, Place row_of = Itself,
              Place column_of = Itself, Place expert_of = Itself)
      : slots_(std::move(terms), sizes, zeros_, zeros_),
        row_of_(std::move(row_of)),
        column_of_(std::move(column_of)),
        expert_of_(std::move(expert_of)) {}

  AdapterSlots& slots() { return slots_; }
  const AdapterSlots& slots() const { return slots_; }

  void Fill(std::size_t slot, const FilledWith& with) {
    for (std::size_t i = 0; i < slots_.terms().size(); ++i) {
      const AdapterTerm& term = slots_.terms()[i];
      for (std::int64_t expert = 0; expert < std::max<std::int64_t>(term.experts, 1); ++expert) {
        FillTerm(slot, i, expert, with);
      }
    }
  }
  // Every byte of the factors 0xff, which is NaN; the numbers are left.
  void FillWithNaN(std::size_t slot) {
    for (const CapturedBuffer& buffer : slots_.Buffers(slot)) {
      std::memset(buffer.address, 0xff, static_cast<std::size_t>(NumBytes(buffer.dtype, buffer.shape)));
    }
  }

  // Elements of a slot's factors: A by [rank, column], also if it is looked up; B by [row, rank].
  double A(std::size_t term, std::size_t slot, std::int64_t expert, std::int64_t j, std::int64_t column) const {
    return ElementValue(slots_.sizes().dtype, slots_.A(term, slot, static_cast<std::size_t>(expert)),
                        PlaceInA(slots_.terms()[term], j, column));
  }
  double B(std::size_t term, std::size_t slot, std::int64_t expert, std::int64_t row, std::int64_t j) const {
    return ElementValue(slots_.sizes().dtype, slots_.B(term, slot, static_cast<std::size_t>(expert)),
                        row * slots_.sizes().max_rank + j);
  }
  void SetA(std::size_t term, std::size_t slot, std::int64_t expert, std::int64_t j, std::int64_t column, float value) {
    Set(slots_.A(term, slot, static_cast<std::size_t>(expert)), PlaceInA(slots_.terms()[term], j, column), value);
  }
  void SetB(std::size_t term, std::size_t slot, std::int64_t expert, std::int64_t row, std::int64_t j, float value) {
    Set(slots_.B(term, slot, static_cast<std::size_t>(expert)), row * slots_.sizes().max_rank + j, value);
  }
  AdapterNumbers& NumbersOf(std::size_t term, std::size_t slot, std::int64_t expert = 0) {
    return slots_.Numbers(slot)[slots_.first_number(term) + static_cast<std::size_t>(expert)];
  }

 private:
  static std::int64_t Itself(const AdapterTerm& /*term*/, std::int64_t index) { return index; }

  std::int64_t PlaceInA(const AdapterTerm& term, std::int64_t j, std::int64_t column) const {
    return term.lookup ? column * slots_.sizes().max_rank + j : j * term.columns + column;
  }

  void FillTerm(std::size_t slot, std::size_t index, std::int64_t expert, const FilledWith& with) {
    const AdapterTerm& term = slots_.terms()[index];
    const std::int32_t rank = with.has(term) ? with.rank : 0;
    NumbersOf(index, slot, expert) = {.rank = rank, .scale = with.scale};
    const std::string name =
        term.layer + "." + term.parameter + "." + term.shard + std::to_string(expert_of_(term, expert));
    for (std::int64_t j = 0; j < slots_.sizes().max_rank; ++j) {
      const auto value = [&](const char* factor, std::int64_t place) {
        return j < rank ? 0.3F * AdapterValue(name + factor, with.seed, place, j) : 0.0F;
      };
      for (std::int64_t c = 0; c < term.columns; ++c) {
        SetA(index, slot, expert, j, c, value("A", column_of_(term, c)));
      }
      for (std::int64_t r = 0; r < term.rows; ++r) SetB(index, slot, expert, r, j, value("B", row_of_(term, r)));
    }
  }

  // Cuts the mantissa, where there is less room for it.
  void Set(const std::byte* factor, std::int64_t index, float value) {
    auto* to = const_cast<std::byte*>(factor);
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if (slots_.sizes().dtype == DType::kF32) std::memcpy(to + 4 * index, &bits, 4);
    if (slots_.sizes().dtype == DType::kBF16) std::memcpy(to + 2 * index, reinterpret_cast<const char*>(&bits) + 2, 2);
    if (slots_.sizes().dtype == DType::kF16) {
      const auto half = static_cast<_Float16>(value);
      std::memcpy(to + 2 * index, &half, 2);
    }
  }

  HostMemory host_;
  FillingMemory zeros_{host_, std::byte{0}};
  AdapterSlots slots_;
  Place row_of_, column_of_, expert_of_;
};

}  // namespace layercast::testing
