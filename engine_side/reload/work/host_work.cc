#include "engine_side/reload/work/host_work.h"

#include <algorithm>
#include <atomic>

#include "engine_side/quant/dequantize.h"
#include "engine_side/quant/recipes/recipe_parts.h"
#include "engine_side/quant/rescale.h"
#include "engine_side/reload/layout/strided.h"
#include "engine_side/reload/work/check_scales.h"
#include "engine_side/reload/work/fuse_and_shard.h"
#include "engine_side/reload/work/wrong_values.h"
#include "layercast/error.h"
#include "src/base/rounding.h"
#include "src/tensor/cast.h"
#include "src/tensor/exponential.h"
#include "src/tensor/kernels/scan.h"
#include "src/tensor/region_views.h"
#include "src/tensor/strided_copy.h"

namespace layercast {
namespace {

constexpr std::size_t kShareBytes = std::size_t{256} << 10;  // what a thread places at a time: it fits its cache

bool AllFinite(DType dtype, const RegionView& view) {
  const MatrixView matrix{.dtype = dtype,
                          .data = view.base,
                          .rows = static_cast<std::int64_t>(view.rows),
                          .cols = static_cast<std::int64_t>(view.row_bytes) * 8 / BitsPerElement(dtype),
                          .row_stride = static_cast<std::int64_t>(view.rows > 1 ? view.stride : view.row_bytes)};
  return Scan(matrix).first_non_finite < 0;
}

std::span<std::uint8_t> Codes(std::span<std::byte> bytes) {
  return {reinterpret_cast<std::uint8_t*>(bytes.data()), bytes.size()};
}

}  // namespace

void HostWork::Zero(const TensorSpec& spec, const Box& box, std::byte* memory) { ZeroBox(spec, box, memory); }

void HostWork::FuseAndShard(const SourcePiece& piece, const RegionView& view, std::byte* memory) {
  Place(piece, view, memory, Values::kAny);
}

void HostWork::CopyArrived(const SourcePiece& piece, const RegionView& view, std::byte* memory) {
  Place(piece, view, memory, Values::kFinite);
}

// Each share is checked and then placed, while it is in a cache. Small pieces are many, and are not cut.
void HostWork::Place(const SourcePiece& piece, const RegionView& view, std::byte* memory, Values allowed) {
  std::atomic<bool> right = true;
  const auto place = [&](const RegionView& rows, std::uint64_t begin) {
    const Piece part{.placement = piece.piece.placement, .begin = begin, .end = begin + rows.num_bytes()};
    if (allowed == Values::kFinite && !AllFinite(piece.dtype, rows)) right = false;
    if (!layercast::FuseAndShard(piece.placement, part, piece.dtype, rows, piece.parameter, memory)) right = false;
  };
  if (view.num_bytes() <= kShareBytes) {
    place(view, piece.piece.begin);
  } else {
    const std::vector<ViewShare> shares = SharesOf({&view, 1}, kShareBytes);
    pool_.For(shares.size(), [&](std::size_t i) {
      std::uint64_t begin = piece.piece.begin + shares[i].begin;
      for (const RegionView& rows : shares[i].views) {
        place(rows, begin);
        begin += rows.num_bytes();
      }
    });
  }
  if (!right) ThrowFirstWrongElement(piece, view);
}

void HostWork::QuantizeArrived(const Recipe& recipe, const MatrixView& rows, std::int64_t first_row,
                               const AmaxInput& amax, std::span<const KernelTensorView> outputs,
                               const PlacedMatrix& place) {
  try {
    recipe.Quantize(rows, first_row, amax, outputs, pool_);
  } catch (const NonFiniteWeight& error) {
    ThrowWrongWeight(place, error.row(), error.col(), "expected finite values, got " + NonFiniteName(error.value()));
  } catch (const Error& error) {
    throw Error(error.code(), place.ToString() + ": " + error.what());
  }
}

void HostWork::CheckExponents(std::span<const std::byte> exponents, const PlacedMatrix& place) {
  const std::ptrdiff_t nan = FindNanExponent(exponents);
  if (nan >= 0) ThrowNanExponent(place, nan);
}

void HostWork::Rescale(std::span<std::byte> codes, float from, float to) {
  layercast::Rescale(Codes(codes), from, to, pool_);
}

void HostWork::RescaleNvfp4(std::span<std::byte> codes, std::span<std::byte> scales, float from, float to) {
  layercast::RescaleNvfp4(Codes(codes), Codes(scales), from, to, pool_);
}

void HostWork::Dequantize(const Recipe& recipe, std::span<const KernelTensorView> tensors, DType dtype,
                          std::byte* values) {
  layercast::Dequantize(recipe.Read(tensors), dtype, values, pool_);
}

void HostWork::NegateExponential(DType dtype, const std::byte* from, std::int64_t count, float* to) {
  const auto size = static_cast<std::size_t>(count);
  Cast(dtype, from, DType::kF32, reinterpret_cast<std::byte*>(to), size);
  std::transform(to, to + size, to, NegatedExponential);
}

// Copies in bands of the first dimension, a few for each thread.
void HostWork::CopyStrided(const CapturedBuffer& from, std::span<std::byte> to) {
  if (from.strides.empty() || to.empty()) return ReadCaptured(from, to);
  const std::int64_t rows = from.shape[0];
  const std::int64_t row_bytes = std::ssize(to) / rows;
  const std::int64_t step = from.strides[0] * BitsPerElement(from.dtype) / 8;
  const std::int64_t band = CeilDivide<std::int64_t>(rows, 4 * static_cast<std::int64_t>(pool_.threads()));
  pool_.For(static_cast<std::size_t>(CeilDivide(rows, band)), [&](std::size_t i) {
    const std::int64_t first = static_cast<std::int64_t>(i) * band;
    CapturedBuffer part = from;
    part.shape[0] = std::min(band, rows - first);
    part.address += first * step;
    ReadCaptured(part, to.subspan(static_cast<std::size_t>(first * row_bytes),
                                  static_cast<std::size_t>(part.shape[0] * row_bytes)));
  });
}

void HostWork::CheckDerived(const std::string& layer, const TensorSpec& spec, std::span<const std::byte> tensor) {
  const ScanResult scan = Scan(AsMatrix(spec, tensor.data()), pool_);
  if (scan.first_non_finite >= 0) ThrowWrongDerived(layer, spec.name, scan.first_non_finite);
}

std::vector<std::span<const std::byte>> HostWork::ReadBack(std::span<const std::span<const std::byte>> tensors,
                                                           Buffer& /*memory*/) {
  return {tensors.begin(), tensors.end()};
}

}  // namespace layercast
