// The units of one row that a thread holds in registers. A team of threads holds kHeld * threads consecutive units, and
// each of its threads holds every threads-th of them. All are loaded before the first is used.
#pragma once

#include <cstdint>

#include "src/device/kernels/team.cuh"

namespace layercast::cuda {

template <class Access>
class HeldUnits {
 public:
  using Type = typename Access::Type;

  // 64 bytes: this makes enough loads in flight, and leaves registers for enough threads.
  static constexpr int kHeld = 64 / (kUnit * Type::kBytes);

  LAYERCAST_HOST_DEVICE static std::int64_t OfTeam(const Seat& seat) { return std::int64_t{kHeld} * seat.threads; }

  // Loads the thread's units of row `row`. The team's begin at unit `first`.
  template <Reads kReads = Reads::kOnce>
  LAYERCAST_HOST_DEVICE void Load(const Source& source, const Seat& seat, std::int64_t row, std::int64_t first) {
    row_ = row;
    first_ = first + seat.thread;
    step_ = seat.threads;
    const std::int64_t left = row < source.rows ? source.units() - first_ : 0;
    left_ = left < 0 ? 0 : left < kHeld * step_ ? static_cast<int>(left) : kHeld * step_;
    const std::int64_t offset = row * source.row_stride + first_ * Access::kBytes;
    LAYERCAST_UNROLL
    for (int i = 0; i < kHeld; ++i) {
      units_[i] = {};
      if (Has(i)) {
        const unsigned char* from = source.data + (offset + i * step_ * Access::kBytes);
        units_[i] = Access::template Load<kReads>(from, source.cols - number(i) * kUnit);
      }
    }
  }

  LAYERCAST_HOST_DEVICE bool Has(int i) const { return i * step_ < left_; }
  LAYERCAST_HOST_DEVICE const Unit<Type>& operator[](int i) const { return units_[i]; }
  LAYERCAST_HOST_DEVICE std::int64_t row() const { return row_; }
  LAYERCAST_HOST_DEVICE std::int64_t number(int i) const { return first_ + i * step_; }  // of unit i, in the row

  // The largest Magnitude of all units.
  LAYERCAST_HOST_DEVICE std::uint32_t Largest() const {
    std::uint32_t largest = 0;
    LAYERCAST_UNROLL
    for (int i = 0; i < kHeld; ++i) {
      const std::uint32_t of_unit = LargestOf(units_[i]);
      largest = largest < of_unit ? of_unit : largest;
    }
    return largest;
  }

  // To be called if Largest is above `limit`. It is the last thing that a thread does, so that nothing must be kept in
  // registers.
  LAYERCAST_HOST_DEVICE void ReportFaults(const Source& source, std::uint32_t limit) const {
    cuda::ReportFaults<Type>(source, {row_, first_, 0, step_, (left_ + step_ - 1) / step_}, limit);
  }

  // Stores the kWords words that unit i became. `row` is where the first unit of its row goes.
  template <int kWords>
  LAYERCAST_HOST_DEVICE void Store(const Source& source, int i, const std::uint32_t (&words)[kWords],
                                   unsigned char* row) const {
    constexpr int kBytes = 4 * kWords;
    Access::Store(words, row + (first_ * kBytes + i * step_ * kBytes), source.cols - number(i) * kUnit);
  }

 private:
  Unit<Type> units_[kHeld];
  std::int64_t row_ = 0;
  std::int64_t first_ = 0;
  int step_ = 1;
  int left_ = 0;  // units from first_ on that are in the row and among the team's
};

}  // namespace layercast::cuda
