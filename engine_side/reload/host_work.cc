#include "engine_side/reload/host_work.h"

#include "engine_side/model/box_runs.h"
#include "engine_side/reload/check_scales.h"
#include "engine_side/reload/commit.h"
#include "engine_side/reload/fuse_and_shard.h"
#include "layercast/error.h"

namespace layercast {

void HostWork::Zero(const TensorSpec& spec, const Box& box, std::byte* memory) { ZeroBox(spec, box, memory); }

void HostWork::FuseAndShard(const Placement& placement, const Piece& piece, DType source, const RegionView& view,
                            const TensorSpec& parameter, std::byte* memory) {
  layercast::FuseAndShard(placement, piece, source, view, parameter, memory);
}

void HostWork::Quantize(const Recipe& recipe, const MatrixView& rows, std::int64_t first_row, const AmaxInput& amax,
                        std::span<const KernelTensorView> outputs, const PlacedMatrix& place) {
  try {
    recipe.Quantize(rows, first_row, amax, outputs, pool_);
  } catch (const Error& error) {
    throw Error(error.code(), place.ToString() + ": " + error.what());
  }
}

void HostWork::CheckExponents(std::span<const std::byte> exponents, const PlacedMatrix& place) {
  const std::ptrdiff_t nan = FindNanExponent(exponents);
  if (nan >= 0) ThrowNanExponent(place, nan);
}

std::vector<std::span<std::byte>> HostWork::ReadBack(std::span<const std::span<std::byte>> tensors,
                                                     Buffer& /*memory*/) {
  return {tensors.begin(), tensors.end()};
}

void HostWork::CopyServed(const CapturedBuffer& served, std::span<std::byte> to) { ReadCaptured(served, to); }

}  // namespace layercast
