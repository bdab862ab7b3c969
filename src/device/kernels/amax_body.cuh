// The CUDA kernel for the largest finite magnitude of a weight, or of each of its rows.
#pragma once

#include <cstdint>
#include <type_traits>

#include "src/device/kernels/dispatch_dtype.cuh"
#include "src/device/kernels/held_units.cuh"

namespace layercast::cuda {

// The largest finite magnitude of all units that are held.
template <class Access>
LAYERCAST_HOST_DEVICE std::uint32_t LargestFiniteOf(const HeldUnits<Access>& units) {
  using Type = typename Access::Type;
  std::uint32_t largest = 0;
  LAYERCAST_UNROLL
  for (int i = 0; i < HeldUnits<Access>::kHeld * kUnit; ++i) {
    const std::uint32_t magnitude = Type::Magnitude(units[i / kUnit].words, i % kUnit);
    if (magnitude < Type::kInfinity && largest < magnitude) largest = magnitude;
  }
  return largest;
}

inline constexpr int kAmaxThreads = 256;

// A team goes through one part of a row, which may be several times what it can hold. The result is the weight's
// magnitude or, with WholeRows, each row's.
template <class Access, class Parts>
class AmaxBody {
 public:
  using Type = typename Access::Type;
  struct Arguments {
    Source source;
    Parts parts;
    std::int64_t units_of_part;
    float* amax;
  };
  static constexpr bool kByRow = std::is_same_v<Parts, WholeRows>;
  static constexpr int kMaxima = 1;
  static constexpr int kSharers = 0;
  static constexpr int kMaxThreads = kAmaxThreads;
  static constexpr int kMinBlocks = 4;
  static constexpr int kHeld = HeldUnits<Access>::kHeld;

  LAYERCAST_HOST_DEVICE AmaxBody(const Arguments& arguments, const Seat& seat)
      : arguments_(arguments), seat_(seat), row_(arguments.parts.RowOf(seat.team)) {}

  LAYERCAST_HOST_DEVICE void Scan(std::uint32_t (&amax)[kMaxima]) {
    const Source& source = arguments_.source;
    amax[0] = 0;
    const std::int64_t first = arguments_.parts.PartOf(seat_.team) * arguments_.units_of_part;
    for (std::int64_t unit = 0; unit < arguments_.units_of_part; unit += units_.OfTeam(seat_)) {
      units_.Load(source, seat_, row_, first + unit);
      std::uint32_t largest = units_.Largest();
      if (largest >= Type::kInfinity) {
        wrong_ = true;
        largest = LargestFiniteOf(units_);
      }
      amax[0] = amax[0] < largest ? largest : amax[0];
    }
  }

  LAYERCAST_HOST_DEVICE void Encode(const std::uint32_t (&amax)[kMaxima]) {
    if (wrong_) ReportAll();
    if (seat_.thread != 0 || row_ >= arguments_.source.rows) return;
    if constexpr (kByRow) {
      arguments_.amax[row_] = FloatOfBits(amax[0]);
    } else {
      MergeMax(arguments_.amax, FloatOfBits(amax[0]));
    }
  }

 private:
  // Reports the faults in the whole part that the team went through.
  LAYERCAST_HOST_DEVICE void ReportAll() {
    const std::int64_t first = arguments_.parts.PartOf(seat_.team) * arguments_.units_of_part;
    for (std::int64_t unit = 0; unit < arguments_.units_of_part; unit += units_.OfTeam(seat_)) {
      units_.Load(arguments_.source, seat_, row_, first + unit);
      units_.ReportFaults(arguments_.source, Type::kInfinity - 1);
    }
  }

  const Arguments& arguments_;
  const Seat seat_;
  const std::int64_t row_;
  bool wrong_ = false;
  HeldUnits<Access> units_;
};

template <class Runner>
void RunAmax(const Runner& runner, const CudaMatrix& piece, float* amax, CudaFaultWord* fault) {
  constexpr std::int64_t kBlocks = 2048;  // enough to fill any device several times, and few enough to merge quickly
  constexpr std::int64_t kMostRounds = 16;
  const Source source = FlatSourceOf(piece, fault);
  ForAccess(piece.dtype, source, nullptr, 1, [&](auto access) {
    using Access = decltype(access);
    Grid grid = RowTeams(source.rows, source.units(), HeldUnits<Access>::kHeld, kAmaxThreads);
    const std::int64_t of_round = std::int64_t{HeldUnits<Access>::kHeld} * grid.threads;
    const std::int64_t rounds = source.rows * source.units() / (of_round * kBlocks);
    const std::int64_t of_part = of_round * (rounds < 1 ? 1 : rounds > kMostRounds ? kMostRounds : rounds);
    ForParts(source, of_part, [&](auto parts, std::int64_t teams) {
      grid.teams = teams;
      runner.template Run<AmaxBody<Access, decltype(parts)>>({source, parts, of_part, amax}, grid);
    });
  });
}

template <class Runner>
void RunRowAmax(const Runner& runner, const CudaMatrix& piece, float* amax, CudaFaultWord* fault) {
  const Source source = SourceOf(piece, fault);
  ForAccess(piece.dtype, source, nullptr, 1, [&](auto access) {
    using Body = AmaxBody<decltype(access), WholeRows>;
    const Grid grid = RowTeams(source.rows, source.units(), Body::kHeld, kAmaxThreads);
    runner.template Run<Body>({source, {}, source.units(), amax + piece.first_row}, grid);
  });
}

}  // namespace layercast::cuda
