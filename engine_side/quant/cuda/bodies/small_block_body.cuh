// The CUDA kernel of mxfp8, mxfp4 and nvfp4: blocks of 32 or 16 columns, each shared by a few neighbouring lanes.
#pragma once

#include <cstdint>

#include "engine_side/quant/cuda/bodies/fp4_unit.cuh"
#include "engine_side/quant/cuda/bodies/fp8_unit.cuh"
#include "engine_side/quant/cuda/bodies/given_amax.cuh"
#include "src/device/kernels/dispatch_dtype.cuh"
#include "src/device/kernels/held_units.cuh"

namespace layercast::cuda {

struct Mxfp8Format {
  static constexpr int kBlock = static_cast<int>(kMxBlock);
  static constexpr int kCodeWords = 2;  // words of codes for a unit
  static constexpr bool kHasAmax = false;

  LAYERCAST_HOST_DEVICE explicit Mxfp8Format(float /*amax*/) {}
  LAYERCAST_HOST_DEVICE float GlobalScale() const { return 0.0F; }

  LAYERCAST_HOST_DEVICE std::uint8_t Scale(float amax) const { return MxExponent(amax, kMxfp8Element); }

  template <class Type>
  LAYERCAST_HOST_DEVICE void Encode(const Unit<Type>& unit, std::uint8_t scale, std::uint32_t (&codes)[2]) const {
    EncodeE4M3(unit, ByReciprocal{MxFactor(scale)}, codes);
  }
};

struct Mxfp4Format {
  static constexpr int kBlock = static_cast<int>(kMxBlock);
  static constexpr int kCodeWords = 1;
  static constexpr bool kHasAmax = false;

  LAYERCAST_HOST_DEVICE explicit Mxfp4Format(float /*amax*/) {}
  LAYERCAST_HOST_DEVICE float GlobalScale() const { return 0.0F; }

  LAYERCAST_HOST_DEVICE std::uint8_t Scale(float amax) const { return MxExponent(amax, kMxfp4Element); }

  template <class Type>
  LAYERCAST_HOST_DEVICE void Encode(const Unit<Type>& unit, std::uint8_t scale, std::uint32_t (&codes)[1]) const {
    EncodeE2M1<false>(unit, MxFactor(scale), codes);
  }
};

class Nvfp4Format {
 public:
  static constexpr int kBlock = static_cast<int>(kNvfp4Block);
  static constexpr int kCodeWords = 1;
  static constexpr bool kHasAmax = true;

  // `amax` is that of the whole weight.
  LAYERCAST_HOST_DEVICE explicit Nvfp4Format(float amax)
      : global_(IsZeroNvfp4(amax) ? 0.0F : Nvfp4GlobalFactor(amax)) {}
  LAYERCAST_HOST_DEVICE float GlobalScale() const { return global_ == 0.0F ? 0.0F : 1.0F / global_; }

  LAYERCAST_HOST_DEVICE std::uint8_t Scale(float amax) const {
    return static_cast<std::uint8_t>(CodeOfE4M3(global_ * SixthOf(amax)));
  }

  template <class Type>
  LAYERCAST_HOST_DEVICE void Encode(const Unit<Type>& unit, std::uint8_t scale, std::uint32_t (&codes)[1]) const {
    codes[0] = 0;
    if (scale == 0) return;
    EncodeE2M1<true>(unit, global_ / E4M3Value(scale), codes);  // a block scale rounded down gives more than 6
  }

 private:
  const float global_;
};

template <class Format, class Access, class Parts>
class SmallBlockBody {
 public:
  struct Arguments {
    Source source;
    Parts parts;
    CudaTensorAmax amax;    // used if Format::kHasAmax
    unsigned char* values;  // these two begin at the source's first row
    std::uint8_t* scales;
    float* global_scale;
  };
  static constexpr int kHeld = HeldUnits<Access>::kHeld;
  static constexpr int kMaxima = kHeld;
  static constexpr int kSharers = Format::kBlock / kUnit;
  static constexpr int kMaxThreads = 256;
  static constexpr int kMinBlocks = 4;

  LAYERCAST_HOST_DEVICE SmallBlockBody(const Arguments& arguments, const Seat& seat)
      : arguments_(arguments), seat_(seat) {}

  LAYERCAST_HOST_DEVICE void Scan(std::uint32_t (&amax)[kMaxima]) {
    const Source& source = arguments_.source;
    units_.Load(source, seat_, arguments_.parts.RowOf(seat_.team),
                arguments_.parts.PartOf(seat_.team) * units_.OfTeam(seat_));
    using Type = typename Access::Type;
    whole_amax_ = Format::kHasAmax ? AmaxValue(arguments_.amax) : 0.0F;
    limit_ = Format::kHasAmax ? LimitOf<Type>(whole_amax_) : Type::kInfinity - 1;
    LAYERCAST_UNROLL
    for (int i = 0; i < kHeld; ++i) {
      amax[i] = LargestOf(units_[i]);
      wrong_ = wrong_ || amax[i] > limit_;
    }
  }

  LAYERCAST_HOST_DEVICE void Encode(const std::uint32_t (&amax)[kMaxima]) {
    const Format format(whole_amax_);
    if (Format::kHasAmax && seat_.team == 0 && seat_.thread == 0) *arguments_.global_scale = format.GlobalScale();
    const std::int64_t units_before = units_.row() * arguments_.source.units();
    unsigned char* row = arguments_.values + units_before * (4 * Format::kCodeWords);
    LAYERCAST_UNROLL
    for (int i = 0; i < kHeld; ++i) {
      if (!units_.Has(i)) continue;
      const std::uint8_t scale = format.Scale(FloatOfBits(amax[i]));
      if (seat_.thread % kSharers == 0) arguments_.scales[(units_before + units_.number(i)) / kSharers] = scale;
      std::uint32_t codes[Format::kCodeWords];
      format.Encode(units_[i], scale, codes);
      units_.Store(arguments_.source, i, codes, row);
    }
    if (wrong_) units_.ReportFaults(arguments_.source, limit_);
  }

 private:
  const Arguments& arguments_;
  const Seat seat_;
  float whole_amax_ = 0.0F;
  std::uint32_t limit_ = 0;
  bool wrong_ = false;
  HeldUnits<Access> units_;
};

template <class Format, class Runner>
void RunSmallBlocks(const Runner& runner, const CudaMatrix& piece, CudaTensorAmax amax, std::uint8_t* values,
                    std::uint8_t* scales, float* global_scale, CudaFaultWord* fault) {
  constexpr int kUnitBytes = 4 * Format::kCodeWords;
  const Source source = FlatSourceOf(piece, fault);
  const std::int64_t elements_before = piece.first_row * piece.cols;
  unsigned char* first = values + elements_before / kUnit * kUnitBytes;
  std::uint8_t* first_scale = scales + elements_before / Format::kBlock;
  ForAccess(piece.dtype, source, first, kUnitBytes, [&](auto access) {
    ForParts(source, kWarp * HeldUnits<decltype(access)>::kHeld, [&](auto parts, std::int64_t teams) {
      using Body = SmallBlockBody<Format, decltype(access), decltype(parts)>;
      runner.template Run<Body>({source, parts, amax, first, first_scale, global_scale}, WarpTeams(teams));
    });
  });
}

}  // namespace layercast::cuda
