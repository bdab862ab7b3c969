#include "engine_side/quant/cpu/cpu_kernel.h"

#include <cstddef>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine_side/quant/cpu/fp8_per_tensor_kernel.cc"
#include "hwy/foreach_target.h"  // includes this file once per target
// After foreach_target.h:
#include "engine_side/quant/cpu/chunk_pass-inl.h"
#include "engine_side/quant/cpu/fp8_codes-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace layercast {
namespace HWY_NAMESPACE {
namespace {

template <class Type>
bool WithScale(const MatrixView& matrix, float amax, float scale, std::uint8_t* values) {
  const MatrixView source = AsOneRow(Type{}, matrix);
  const auto encoder = Fp8Encoder<Type, Quotient::kReciprocal>::With(amax, scale);
  const ChunkConstants<Fp8Encoder<Type, Quotient::kReciprocal>> constants;
  PagePrefetcher prefetcher(PagesOf(Type{}, source));
  Maxima<Type> maxima;
  const auto cols = static_cast<std::size_t>(source.cols);
  for (std::int64_t r = 0; r < source.rows; ++r) {
    Run<Do::kBoth>(constants, {cols, source.row(r), source.row(r), values + r * source.cols}, maxima, prefetcher,
                   encoder);
  }
  return maxima.Amax() <= amax;
}

}  // namespace

bool Fp8WithScale(const MatrixView& source, float amax, float scale, std::uint8_t* values) {
  return ForType(source.dtype, [&](auto type) { return WithScale<decltype(type)>(source, amax, scale, values); });
}

}  // namespace HWY_NAMESPACE
}  // namespace layercast
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace layercast {

HWY_EXPORT(Fp8WithScale);

bool CpuFp8PerTensor(const QuantizeJob& job) {
  return HWY_DYNAMIC_DISPATCH(Fp8WithScale)(job.source, job.amax, job.scale, job.codes());
}

}  // namespace layercast
#endif
