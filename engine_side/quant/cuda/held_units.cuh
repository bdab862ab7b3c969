// The units of one row that a thread holds in registers: the team has kHeld * threads of them in a row, one after the
// other, and each thread every threads-th. All are loaded before the first is used.
#pragma once

#include <cstdint>

#include "engine_side/quant/cuda/team.cuh"

namespace layercast::cuda {

template <class Access>
class HeldUnits {
 public:
  using Type = typename Access::Type;

  // 64 bytes: enough loads in flight, and registers for enough threads.
  static constexpr int kHeld = 64 / (kUnit * Type::kBytes);

  LAYERCAST_HOST_DEVICE static std::int64_t OfTeam(const Seat& seat) { return std::int64_t{kHeld} * seat.threads; }

  // Of row `row`, from unit `first` on.
  LAYERCAST_HOST_DEVICE void Load(const Source& source, const Seat& seat, std::int64_t row, std::int64_t first) {
    row_ = row;
    first_ = first + seat.thread;
    step_ = seat.threads;
    const std::int64_t units = row < source.rows ? source.units() : 0;
    count_ = 0;
    LAYERCAST_UNROLL
    for (int i = 0; i < kHeld; ++i) {
      units_[i] = {};
      if (number(i) >= units) continue;
      units_[i] = Access::Load(source, row, number(i));
      count_ = i + 1;
    }
  }

  LAYERCAST_HOST_DEVICE bool Has(int i) const { return i < count_; }
  LAYERCAST_HOST_DEVICE const Unit<Type>& operator[](int i) const { return units_[i]; }
  LAYERCAST_HOST_DEVICE std::int64_t row() const { return row_; }
  LAYERCAST_HOST_DEVICE std::int64_t number(int i) const { return first_ + i * step_; }  // in the row

  // The largest Magnitude of all. If it is above `limit` the weight has a fault.
  LAYERCAST_HOST_DEVICE std::uint32_t CheckedLargest(const Source& source, std::uint32_t limit) const {
    std::uint32_t largest = 0;
    LAYERCAST_UNROLL
    for (int i = 0; i < kHeld; ++i) {
      const std::uint32_t of_unit = LargestOf(units_[i]);
      largest = largest < of_unit ? of_unit : largest;
    }
    if (largest > limit) {
      for (int i = 0; i < count_; ++i) ReportFault<Type>(source, row_, number(i), limit);
    }
    return largest;
  }

 private:
  Unit<Type> units_[kHeld];
  std::int64_t row_ = 0;
  std::int64_t first_ = 0;
  std::int64_t step_ = 0;
  int count_ = 0;
};

}  // namespace layercast::cuda
