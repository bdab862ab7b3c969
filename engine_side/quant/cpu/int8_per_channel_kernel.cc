#include "engine_side/quant/cpu/cpu_kernel.h"

#include "engine_side/quant/codes.h"
#include "engine_side/quant/scales.h"
#include "src/tensor/element.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine_side/quant/cpu/int8_per_channel_kernel.cc"
#include "hwy/foreach_target.h"  // includes this file once per target
// After foreach_target.h:
#include "engine_side/quant/cpu/row_pass-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace layercast {
namespace HWY_NAMESPACE {
namespace {

// Makes rint(w / s). w * (1/s), corrected by its remainder, is w / s rounded once (see Divide in fp8_codes-inl.h).
// Adding 1.5 * 2^23 to it leaves no bits behind the point, and puts the integer into the low byte.
template <class SourceType>
class Int8Encoder {
 public:
  using Type = SourceType;

  static Int8Encoder ForAmax(float amax) {
    constexpr float kSmallest = 0x1p-100F;  // from here on remainders are exact, and |w / s| rounds to at most 127
    Int8Encoder encoder;
    encoder.scale_ = Int8Scale(amax);
    encoder.quick_ = encoder.scale_ >= kSmallest || amax == 0.0F;
    encoder.reciprocal_ = amax == 0.0F ? 0.0F : 1.0F / encoder.scale_;
    return encoder;
  }
  float scale() const { return scale_; }

  std::uint8_t One(float w) const { return EncodeInt8(w, scale_); }

#if HWY_TARGET != HWY_SCALAR
  struct Constants {
    HWY_INLINE Constants() {}  // NOLINT(modernize-use-equals-default): a default one has no instruction set

    using DF = hn::Repartition<float, ByteTag>;
    hn::Vec<hn::RebindToUnsigned<DF>> high_half = Keep(HighHalf(DF()));
    hn::Vec<hn::RebindToUnsigned<DF>> even = Keep(hn::Set(hn::RebindToUnsigned<DF>(), 0xffU));
    hn::Vec<DF> shifter = Keep(hn::Set(DF(), 12582912.0F));
  };

  static constexpr bool kHasTable = false;

  class ByArithmetic {
   public:
    HWY_INLINE ByArithmetic(const Constants& constants, const Int8Encoder& encoder)
        : constants_(constants), encoder_(encoder) {}

    template <class Put>
    HWY_INLINE bool operator()(const std::byte* from, const Put& put) const {
      for (std::size_t i = 0; i < kChunk; i += hn::Lanes(ByteTag())) {
        put(i, encoder_.Codes(constants_, from + i * sizeof(typename Type::Bits)));
      }
      return true;
    }

   private:
    const Constants& constants_;
    const Int8Encoder& encoder_;
  };

 private:
  HWY_INLINE hn::Vec<ByteTag> Codes(const Constants& constants, const std::byte* from) const {
    if (HWY_UNLIKELY(!quick_)) return Slowly(from);
    const ByteTag d8;
    const hn::RepartitionToWide<ByteTag> d16;
    const auto low = Half(constants, from);
    const auto high = Half(constants, from + hn::Lanes(d8) / 2 * sizeof(typename Type::Bits));
    return hn::BitCast(d8, hn::ConcatEven(d16, high, low));
  }

  using DF = hn::Repartition<float, ByteTag>;
  using DU = hn::RebindToUnsigned<DF>;

  // Two codes, in the low 16 bits of each 32-bit lane.
  HWY_INLINE hn::Vec<hn::RepartitionToWide<ByteTag>> Half(const Constants& constants, const std::byte* from) const {
    const Pairs<DF> w = LoadPairs(Type{}, DF(), from, constants.high_half);
    const auto odd = hn::ShiftLeft<8>(Rounded(constants, w.odd));
    const auto codes = Select(constants.even, Rounded(constants, w.even), odd);
    return hn::BitCast(hn::RepartitionToWide<ByteTag>(), codes);
  }

  HWY_INLINE hn::Vec<DU> Rounded(const Constants& constants, hn::Vec<DF> w) const {
    const DF df;
    const auto reciprocal = hn::Set(df, reciprocal_);
#if HWY_TARGET <= HWY_AVX2
    const auto quotient = hn::Mul(w, reciprocal);
    const auto remainder = hn::NegMulAdd(quotient, hn::Set(df, scale_), w);
    const auto corrected = hn::MulAdd(remainder, reciprocal, quotient);
#else
    const auto divisor = hn::Set(df, reciprocal_ == 0.0F ? 1.0F : scale_);
    const auto corrected = hn::Div(w, divisor);
#endif
    return hn::BitCast(DU(), hn::Add(corrected, constants.shifter));
  }

  HWY_NOINLINE hn::Vec<ByteTag> Slowly(const std::byte* from) const {
    const ByteTag d8;
    HWY_ALIGN std::uint8_t codes[kChunk];
    for (std::size_t i = 0; i < hn::Lanes(d8); ++i) {
      codes[i] = One(static_cast<float>(ElementValue(Type::kDType, from, static_cast<std::int64_t>(i))));
    }
    return hn::Load(d8, codes);
  }
#endif

 private:
  float scale_ = 0.0F;
  float reciprocal_ = 0.0F;
  bool quick_ = true;
};

}  // namespace

bool Int8Rows(const MatrixView& source, std::span<float> scales, std::uint8_t* values) {
  return ForType(source.dtype,
                 [&](auto type) { return EncodeRows<Int8Encoder<decltype(type)>>(source, scales, values); });
}

bool Int8RowsGiven(const MatrixView& source, std::span<const float> amax, std::span<float> scales,
                   std::uint8_t* values) {
  return ForType(source.dtype,
                 [&](auto type) { return EncodeRowsGiven<Int8Encoder<decltype(type)>>(source, amax, scales, values); });
}

}  // namespace HWY_NAMESPACE
}  // namespace layercast
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace layercast {

HWY_EXPORT(Int8Rows);
HWY_EXPORT(Int8RowsGiven);

// As CpuFp8PerChannel.
bool CpuInt8PerChannel(const QuantizeJob& job) {
  if (job.source.rows == 0) return true;
  if (job.row_amax.empty()) return HWY_DYNAMIC_DISPATCH(Int8Rows)(job.source, job.row_scales(), job.codes());
  return HWY_DYNAMIC_DISPATCH(Int8RowsGiven)(job.source, job.row_amax, job.row_scales(), job.codes());
}

}  // namespace layercast
#endif
