// The CUDA kernel of fp8_per_channel and int8_per_channel: a team of threads for each row, which stays in registers
// between the computation of its scale and its encoding. A row that is longer than a block of threads can hold is read
// twice, the second time from a cache. Blocks have half of the threads that they could have, so that while one waits
// for its row, another one of the multiprocessor encodes.
#pragma once

#include <cstdint>

#include "engine_side/quant/cuda/bodies/fp8_unit.cuh"
#include "engine_side/quant/cuda/bodies/given_amax.cuh"
#include "src/device/kernels/dispatch_dtype.cuh"
#include "src/device/kernels/held_units.cuh"

namespace layercast::cuda {

struct Fp8RowEncoder {
  LAYERCAST_HOST_DEVICE explicit Fp8RowEncoder(float amax) : scale(ChannelScale(amax)), by{scale, 1.0F / scale} {}

  template <class Type>
  LAYERCAST_HOST_DEVICE void operator()(const Unit<Type>& unit, std::uint32_t (&codes)[2]) const {
    EncodeE4M3(unit, by, codes);
  }

  const float scale;
  const ByDivision by;
};

class Int8RowEncoder {
 public:
  LAYERCAST_HOST_DEVICE explicit Int8RowEncoder(float amax) : scale(Int8Scale(amax)) {
    const float enlarged = scale < kSmallest ? scale * kEnlarge : scale;
    by_ = {enlarged, scale == 0.0F ? 0.0F : 1.0F / enlarged};
  }

  template <class Type>
  LAYERCAST_HOST_DEVICE void operator()(const Unit<Type>& unit, std::uint32_t (&codes)[2]) const {
    if (scale >= kSmallest) {
      Encode(unit, by_, codes);
    } else if (scale > 0.0F) {
      Encode(unit, ByTinyScale{by_}, codes);
    } else {
      codes[0] = codes[1] = 0;
    }
  }

  const float scale;

 private:
  static constexpr float kSmallest = 7.888609e-31F;  // 2^-100: from here on, remainders are exact, and |w / s| < 127.5
  static constexpr float kEnlarge = 1.2676506e30F;   // 2^100, which both sides of a smaller quotient are multiplied by

  struct ByTinyScale {
    ByDivision by;  // the enlarged scale
    LAYERCAST_HOST_DEVICE float operator()(float w) const {
      const float quotient = by(w * kEnlarge);
      return quotient > kInt8Max ? kInt8Max : quotient < -kInt8Max ? -kInt8Max : quotient;
    }
  };

  template <class Type, class Quotient>
  LAYERCAST_HOST_DEVICE static void Encode(const Unit<Type>& unit, const Quotient& quotient,
                                           std::uint32_t (&codes)[2]) {
    LAYERCAST_UNROLL
    for (int half = 0; half < 2; ++half) {
      std::uint32_t code[4];
      LAYERCAST_UNROLL
      for (int i = 0; i < 4; ++i) code[i] = Int8Code(quotient(ValueOf(unit, 4 * half + i)));
      codes[half] = LowBytes(code[0], code[1], code[2], code[3]);
    }
  }

  ByDivision by_ = {};
};

template <class Encoder, class Access>
class RowBody {
 public:
  struct Arguments {
    Source source;
    const float* row_amax;  // these three begin at the source's first row
    unsigned char* values;
    float* scales;
  };
  static constexpr int kMaxima = 1;
  static constexpr int kSharers = 0;
  static constexpr int kMaxThreads = kMaxTeam;
  static constexpr int kMinBlocks = 2;
  static constexpr int kHeld = HeldUnits<Access>::kHeld;

  LAYERCAST_HOST_DEVICE RowBody(const Arguments& arguments, const Seat& seat)
      : arguments_(arguments), seat_(seat), here_(seat.team < arguments.source.rows) {}

  LAYERCAST_HOST_DEVICE void Scan(std::uint32_t (&amax)[kMaxima]) {
    amax[0] = 0;
    if (!here_) return;
    const Source& source = arguments_.source;
    const float given = arguments_.row_amax == nullptr ? kLargestFloat : arguments_.row_amax[seat_.team];
    limit_ = LimitOf<typename Access::Type>(given);
    for (std::int64_t first = 0; first < source.units(); first += units_.OfTeam(seat_)) {
      units_.template Load<Reads::kAgain>(source, seat_, seat_.team, first);
      const std::uint32_t largest = units_.Largest();
      amax[0] = amax[0] < largest ? largest : amax[0];
    }
    wrong_ = amax[0] > limit_;
    if (arguments_.row_amax != nullptr) amax[0] = BitsOfFloat(given);
  }

  // Encodes the row from its end, which the thread holds already, to its beginning.
  LAYERCAST_HOST_DEVICE void Encode(const std::uint32_t (&amax)[kMaxima]) {
    if (!here_) return;
    const Encoder encoder(FloatOfBits(amax[0]));
    if (seat_.thread == 0) arguments_.scales[seat_.team] = encoder.scale;
    const std::int64_t step = units_.OfTeam(seat_);
    const std::int64_t rounds = (arguments_.source.units() + step - 1) / step;
    for (std::int64_t round = rounds - 1; round >= 0; --round) {
      if (round != rounds - 1) units_.Load(arguments_.source, seat_, seat_.team, round * step);
      EncodeHeld(encoder);
      if (wrong_) units_.ReportFaults(arguments_.source, limit_);
    }
  }

 private:
  static constexpr float kLargestFloat = 3.40282347e+38F;

  LAYERCAST_HOST_DEVICE void EncodeHeld(const Encoder& encoder) {
    unsigned char* row = arguments_.values + seat_.team * arguments_.source.cols;
    LAYERCAST_UNROLL
    for (int i = 0; i < kHeld; ++i) {
      if (!units_.Has(i)) continue;
      std::uint32_t codes[2];
      encoder(units_[i], codes);
      units_.Store(arguments_.source, i, codes, row);
    }
  }

  const Arguments& arguments_;
  const Seat seat_;
  const bool here_;
  std::uint32_t limit_ = 0;
  bool wrong_ = false;
  HeldUnits<Access> units_;
};

template <class Encoder, class Runner>
void RunRows(const Runner& runner, const CudaMatrix& piece, const float* row_amax, std::uint8_t* values, float* scales,
             CudaFaultWord* fault) {
  const Source source = SourceOf(piece, fault);
  unsigned char* first = values + piece.first_row * piece.cols;
  const float* first_amax = row_amax == nullptr ? nullptr : row_amax + piece.first_row;
  ForAccess(piece.dtype, source, first, kUnit, [&](auto access) {
    using Body = RowBody<Encoder, decltype(access)>;
    runner.template Run<Body>({source, first_amax, first, scales + piece.first_row},
                              RowTeams(source.rows, source.units(), Body::kHeld, Body::kMaxThreads));
  });
}

}  // namespace layercast::cuda
