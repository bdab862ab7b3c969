// The CUDA kernel of fp8_per_tensor: every unit is encoded on its own, all with the same scale.
#pragma once

#include <cstdint>

#include "engine_side/quant/cuda/bodies/fp8_unit.cuh"
#include "engine_side/quant/cuda/bodies/given_amax.cuh"
#include "src/device/kernels/dispatch_dtype.cuh"
#include "src/device/kernels/held_units.cuh"

namespace layercast::cuda {

template <class Access, class Parts>
class OneScaleBody {
 public:
  struct Arguments {
    Source source;
    Parts parts;
    CudaTensorAmax amax;
    unsigned char* values;  // begin at the source's first row
    float* scale;
  };
  static constexpr int kMaxima = 1;
  static constexpr int kSharers = 1;
  static constexpr int kMaxThreads = 256;
  static constexpr int kMinBlocks = 4;
  static constexpr int kHeld = HeldUnits<Access>::kHeld;

  LAYERCAST_HOST_DEVICE OneScaleBody(const Arguments& arguments, const Seat& seat)
      : arguments_(arguments), seat_(seat) {}

  LAYERCAST_HOST_DEVICE void Scan(std::uint32_t (&amax)[kMaxima]) {
    const Source& source = arguments_.source;
    units_.Load(source, seat_, arguments_.parts.RowOf(seat_.team),
                arguments_.parts.PartOf(seat_.team) * units_.OfTeam(seat_));
    amax[0] = BitsOfFloat(AmaxValue(arguments_.amax));
  }

  LAYERCAST_HOST_DEVICE void Encode(const std::uint32_t (&amax)[kMaxima]) {
    const float largest = FloatOfBits(amax[0]);
    const bool zero = IsZeroTensor(largest);
    const float scale = zero ? 0.0F : TensorScale(largest);
    const ByReciprocal quotient{zero ? 0.0F : 1.0F / scale};
    unsigned char* row = arguments_.values + units_.row() * arguments_.source.cols;
    LAYERCAST_UNROLL
    for (int i = 0; i < kHeld; ++i) {
      if (!units_.Has(i)) continue;
      std::uint32_t codes[2] = {0, 0};
      if (!zero) EncodeE4M3(units_[i], quotient, codes);
      units_.Store(arguments_.source, i, codes, row);
    }
    if (seat_.team == 0 && seat_.thread == 0) *arguments_.scale = scale;
    const std::uint32_t limit = LimitOf<typename Access::Type>(largest);
    if (units_.Largest() > limit) units_.ReportFaults(arguments_.source, limit);
  }

 private:
  const Arguments& arguments_;
  const Seat seat_;
  HeldUnits<Access> units_;
};

template <class Runner>
void RunFp8PerTensor(const Runner& runner, const CudaMatrix& piece, CudaTensorAmax amax, std::uint8_t* values,
                     float* scale, CudaFaultWord* fault) {
  unsigned char* first = values + piece.first_row * piece.cols;
  const Source source = FlatSourceOf(piece, fault);
  ForAccess(piece.dtype, source, first, kUnit, [&](auto access) {
    ForParts(source, kWarp * HeldUnits<decltype(access)>::kHeld, [&](auto parts, std::int64_t teams) {
      using Body = OneScaleBody<decltype(access), decltype(parts)>;
      runner.template Run<Body>({source, parts, amax, first, scale}, WarpTeams(teams));
    });
  });
}

}  // namespace layercast::cuda
