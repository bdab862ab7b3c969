// The CUDA kernel of fp8_per_block: one block of threads for each 128 x 128 elements, which stay in registers between
// the computation of their scale and their encoding.
#pragma once

#include <cstdint>

#include "engine_side/quant/cuda/bodies/fp8_unit.cuh"
#include "src/device/kernels/dispatch_dtype.cuh"

namespace layercast::cuda {

template <class Access>
class BlockBody {
 public:
  using Type = typename Access::Type;
  struct Arguments {
    Source source;
    std::uint32_t blocks_of_row;
    bool power_of_two;
    unsigned char* values;  // begin at the source's first row
    float* scales;
  };
  static constexpr int kThreads = 256;
  static constexpr int kMaxima = 1;
  static constexpr int kSharers = 0;
  static constexpr int kMaxThreads = kThreads;
  static constexpr int kMinBlocks = 2;

  LAYERCAST_HOST_DEVICE BlockBody(const Arguments& arguments, const Seat& seat) : arguments_(arguments), seat_(seat) {
    const auto block = static_cast<std::uint32_t>(seat.team);
    row_ = block / arguments.blocks_of_row * kFp8Block + seat.thread / kUnitsOfRow;
    unit_ = block % arguments.blocks_of_row * kUnitsOfRow + seat.thread % kUnitsOfRow;
  }

  LAYERCAST_HOST_DEVICE void Scan(std::uint32_t (&amax)[kMaxima]) {
    LAYERCAST_UNROLL
    for (int i = 0; i < kHeld; ++i) {
      units_[i] = {};
      if (Has(i)) {
        const Source& source = arguments_.source;
        units_[i] = Access::Load(source.data + (row(i) * source.row_stride + unit_ * Access::kBytes), left());
      }
    }
    amax[0] = 0;
    LAYERCAST_UNROLL
    for (int i = 0; i < kHeld; ++i) {
      const std::uint32_t largest = LargestOf(units_[i]);
      amax[0] = amax[0] < largest ? largest : amax[0];
    }
    wrong_ = amax[0] >= Type::kInfinity;
  }

  LAYERCAST_HOST_DEVICE void Encode(const std::uint32_t (&amax)[kMaxima]) {
    const float scale = BlockScale(FloatOfBits(amax[0]), arguments_.power_of_two);
    const ByReciprocal quotient{1.0F / scale};
    if (seat_.thread == 0) arguments_.scales[seat_.team] = scale;
    const std::int64_t cols = arguments_.source.cols;
    LAYERCAST_UNROLL
    for (int i = 0; i < kHeld; ++i) {
      if (!Has(i)) continue;
      std::uint32_t codes[2];
      EncodeE4M3(units_[i], quotient, codes);
      Access::Store(codes, arguments_.values + (row(i) * cols + unit_ * kUnit), left());
    }
    if (wrong_) ReportHeld();
  }

 private:
  static constexpr int kUnitsOfRow = static_cast<int>(kFp8Block) / kUnit;
  static constexpr int kRowsAtOnce = kThreads / kUnitsOfRow;
  static constexpr int kHeld = static_cast<int>(kFp8Block) / kRowsAtOnce;

  LAYERCAST_HOST_DEVICE std::int64_t row(int i) const { return row_ + i * kRowsAtOnce; }
  LAYERCAST_HOST_DEVICE std::int64_t left() const { return arguments_.source.cols - unit_ * kUnit; }
  LAYERCAST_HOST_DEVICE bool Has(int i) const {
    return row(i) < arguments_.source.rows && unit_ < arguments_.source.units();
  }

  LAYERCAST_HOST_DEVICE void ReportHeld() const {
    int count = 0;
    while (count < kHeld && Has(count)) ++count;
    ReportFaults<Type>(arguments_.source, {row_, unit_, kRowsAtOnce, 0, count}, Type::kInfinity - 1);
  }

  const Arguments& arguments_;
  const Seat seat_;
  bool wrong_ = false;
  std::int64_t row_ = 0;   // of the thread's first unit
  std::int64_t unit_ = 0;  // of every unit of the thread, in its row
  Unit<Type> units_[kHeld];
};

template <class Runner>
void RunFp8PerBlock(const Runner& runner, const CudaMatrix& piece, bool power_of_two, std::uint8_t* values,
                    float* scales, CudaFaultWord* fault) {
  const Source source = SourceOf(piece, fault);
  const std::int64_t down = (piece.rows + kFp8Block - 1) / kFp8Block;
  const std::int64_t across = (piece.cols + kFp8Block - 1) / kFp8Block;
  unsigned char* first = values + piece.first_row * piece.cols;
  float* first_scale = scales + piece.first_row / kFp8Block * across;
  ForAccess(piece.dtype, source, first, kUnit, [&](auto access) {
    using Body = BlockBody<decltype(access)>;
    runner.template Run<Body>({source, static_cast<std::uint32_t>(across), power_of_two, first, first_scale},
                              {down * across, Body::kThreads, 1});
  });
}

}  // namespace layercast::cuda
