// Casts: every unit by itself, into rows that may lie apart.
#pragma once

#include <cstdint>
#include <type_traits>

#include "engine_side/quant/cuda/dispatch.cuh"
#include "engine_side/quant/cuda/held_units.cuh"
#include "src/tensor/conversions.h"

namespace layercast::cuda {

struct F64 {
  static constexpr int kBytes = 8;
};

// The conversions of a type of elements.cuh, by its number of words.
template <class Type>
struct Elements;

template <class Conversion>
struct Elements16 {
  LAYERCAST_HOST_DEVICE static float Read(const std::uint32_t* words, int i) {
    return Conversion::ToFloat(static_cast<std::uint16_t>(words[i / 2] >> (16 * (i % 2)) & 0xffffU));
  }
  LAYERCAST_HOST_DEVICE static void Write(float value, std::uint32_t* words, int i) {
    const std::uint32_t bits = Conversion::FromFloat(value);
    words[i / 2] = i % 2 == 0 ? bits : words[i / 2] | bits << 16;
  }
};

template <>
struct Elements<BF16> : Elements16<conversions::BF16> {};
template <>
struct Elements<F16> : Elements16<conversions::F16> {};

template <>
struct Elements<F32> {
  LAYERCAST_HOST_DEVICE static float Read(const std::uint32_t* words, int i) { return FloatOfBits(words[i]); }
  LAYERCAST_HOST_DEVICE static void Write(float value, std::uint32_t* words, int i) { words[i] = BitsOfFloat(value); }
};

template <>
struct Elements<F64> {
  LAYERCAST_HOST_DEVICE static float Read(const std::uint32_t* words, int i) {
    const std::uint64_t bits = std::uint64_t{words[2 * i + 1]} << 32 | words[2 * i];
    return conversions::F64::ToFloat(conversions::BitCast<double>(bits));
  }
};

template <class Access, class To>
class CastBody {
 public:
  struct Arguments {
    Source source;
    RowParts parts;
    unsigned char* destination;
    std::int64_t destination_stride;  // bytes
  };
  static constexpr int kMaxima = 1;
  static constexpr int kSharers = 1;
  static constexpr int kMaxThreads = 256;
  static constexpr int kMinBlocks = 4;
  static constexpr int kHeld = HeldUnits<Access>::kHeld;

  LAYERCAST_HOST_DEVICE CastBody(const Arguments& arguments, const Seat& seat) : arguments_(arguments), seat_(seat) {}

  LAYERCAST_HOST_DEVICE void Scan(std::uint32_t (&amax)[kMaxima]) {
    units_.Load(arguments_.source, seat_, arguments_.parts.RowOf(seat_.team),
                arguments_.parts.PartOf(seat_.team) * units_.OfTeam(seat_));
    amax[0] = 0;
  }

  LAYERCAST_HOST_DEVICE void Encode(const std::uint32_t (& /*amax*/)[kMaxima]) {
    unsigned char* row = arguments_.destination + units_.row() * arguments_.destination_stride;
    LAYERCAST_UNROLL
    for (int i = 0; i < kHeld; ++i) {
      if (!units_.Has(i)) continue;
      std::uint32_t words[kUnit * To::kBytes / 4];
      LAYERCAST_UNROLL
      for (int e = 0; e < kUnit; ++e) {
        Elements<To>::Write(Elements<typename Access::Type>::Read(units_[i].words, e), words, e);
      }
      units_.Store(arguments_.source, i, words, row);
    }
  }

 private:
  const Arguments& arguments_;
  const Seat seat_;
  HeldUnits<Access> units_;
};

template <class From, class To, class Runner>
void RunCastOf(const Runner& runner, const Source& source, unsigned char* destination,
               std::int64_t destination_stride) {
  const auto run = [&](auto access) {
    using Body = CastBody<decltype(access), To>;
    const RowParts parts = PartsOf(source, kWarp * Body::kHeld);
    runner.template Run<Body>({source, parts, destination, destination_stride}, PartTeams(source, parts));
  };
  if (source.cols % kUnit == 0 && source.row_stride % 16 == 0 && destination_stride % 16 == 0 &&
      IsAligned(source.data, 16) && IsAligned(destination, 16)) {
    run(Access<From, true>());
  } else {
    run(Access<From, false>());
  }
}

template <class From, class Runner>
void RunCastFrom(const Runner& runner, const Source& source, DType to, unsigned char* destination,
                 std::int64_t destination_stride) {
  ForType(to, [&](auto type) {
    using To = decltype(type);
    if constexpr (!std::is_same_v<From, To>) RunCastOf<From, To>(runner, source, destination, destination_stride);
  });
}

// The two dtypes differ.
template <class Runner>
void RunCast(const Runner& runner, const CudaMatrix& from, DType to, void* destination,
             std::int64_t destination_stride) {
  const Source source = SourceOf(from, nullptr);
  auto* bytes = static_cast<unsigned char*>(destination);
  if (from.dtype == kDTypeF64) return RunCastFrom<F64>(runner, source, to, bytes, destination_stride);
  ForType(from.dtype, [&](auto type) { RunCastFrom<decltype(type)>(runner, source, to, bytes, destination_stride); });
}

}  // namespace layercast::cuda
