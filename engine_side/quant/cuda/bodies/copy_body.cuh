// The CUDA kernel of none: every unit is checked, and stored as it is.
#pragma once

#include <cstdint>

#include "src/device/kernels/dispatch_dtype.cuh"
#include "src/device/kernels/held_units.cuh"

namespace layercast::cuda {

template <class Access, class Parts>
class CopyBody {
 public:
  using Type = typename Access::Type;
  struct Arguments {
    Source source;
    Parts parts;
    unsigned char* values;  // begin at the source's first row
  };
  static constexpr int kMaxima = 1;
  static constexpr int kSharers = 1;
  static constexpr int kMaxThreads = 256;
  static constexpr int kMinBlocks = 4;
  static constexpr int kHeld = HeldUnits<Access>::kHeld;

  LAYERCAST_HOST_DEVICE CopyBody(const Arguments& arguments, const Seat& seat) : arguments_(arguments), seat_(seat) {}

  LAYERCAST_HOST_DEVICE void Scan(std::uint32_t (&amax)[kMaxima]) {
    const Source& source = arguments_.source;
    units_.Load(source, seat_, arguments_.parts.RowOf(seat_.team),
                arguments_.parts.PartOf(seat_.team) * units_.OfTeam(seat_));
    amax[0] = 0;
  }

  LAYERCAST_HOST_DEVICE void Encode(const std::uint32_t (& /*amax*/)[kMaxima]) {
    unsigned char* row = arguments_.values + units_.row() * arguments_.source.cols * Type::kBytes;
    LAYERCAST_UNROLL
    for (int i = 0; i < kHeld; ++i) {
      if (units_.Has(i)) units_.Store(arguments_.source, i, units_[i].words, row);
    }
    if (units_.Largest() >= Type::kInfinity) units_.ReportFaults(arguments_.source, Type::kInfinity - 1);
  }

 private:
  const Arguments& arguments_;
  const Seat seat_;
  HeldUnits<Access> units_;
};

template <class Runner>
void RunCopy(const Runner& runner, const CudaMatrix& piece, void* values, CudaFaultWord* fault) {
  const Source source = FlatSourceOf(piece, fault);
  ForType(piece.dtype, [&](auto type) {
    unsigned char* first = static_cast<unsigned char*>(values) + piece.first_row * piece.cols * type.kBytes;
    ForAccess(piece.dtype, source, first, 16, [&](auto access) {
      ForParts(source, kWarp * HeldUnits<decltype(access)>::kHeld, [&](auto parts, std::int64_t teams) {
        runner.template Run<CopyBody<decltype(access), decltype(parts)>>({source, parts, first}, WarpTeams(teams));
      });
    });
  });
}

}  // namespace layercast::cuda
