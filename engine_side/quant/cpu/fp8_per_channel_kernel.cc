#include "engine_side/quant/cpu/cpu_kernel.h"

#include "engine_side/quant/scales.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine_side/quant/cpu/fp8_per_channel_kernel.cc"
#include "hwy/foreach_target.h"  // includes this file once per target
// After foreach_target.h:
#include "engine_side/quant/cpu/fp8_codes-inl.h"
#include "engine_side/quant/cpu/row_pass-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace layercast {
namespace HWY_NAMESPACE {
namespace {

template <class Type>
struct ChannelEncoder : Fp8Encoder<Type, Quotient::kDivision> {
  using Base = Fp8Encoder<Type, Quotient::kDivision>;
  static ChannelEncoder ForAmax(float amax) { return {Base::With(amax, ChannelScale(amax))}; }
};

}  // namespace

bool Fp8Rows(const MatrixView& source, std::span<float> scales, std::uint8_t* values) {
  return ForType(source.dtype,
                 [&](auto type) { return EncodeRows<ChannelEncoder<decltype(type)>>(source, scales, values); });
}

bool Fp8RowsGiven(const MatrixView& source, std::span<const float> amax, std::span<float> scales,
                  std::uint8_t* values) {
  return ForType(source.dtype, [&](auto type) {
    return EncodeRowsGiven<ChannelEncoder<decltype(type)>>(source, amax, scales, values);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace layercast
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace layercast {

HWY_EXPORT(Fp8Rows);
HWY_EXPORT(Fp8RowsGiven);

// If scales are the rows' own, then while one row is encoded, the next is scanned.
bool CpuFp8PerChannel(const QuantizeJob& job) {
  if (job.source.rows == 0) return true;
  if (job.row_amax.empty()) return HWY_DYNAMIC_DISPATCH(Fp8Rows)(job.source, job.row_scales(), job.codes());
  return HWY_DYNAMIC_DISPATCH(Fp8RowsGiven)(job.source, job.row_amax, job.row_scales(), job.codes());
}

}  // namespace layercast
#endif
