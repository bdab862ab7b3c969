#include "engine_side/quant/cpu/cpu_kernel.h"

#include <cmath>
#include <cstddef>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine_side/quant/cpu/none_kernel.cc"
#include "hwy/foreach_target.h"  // includes this file once per target
// After foreach_target.h:
#include "engine_side/quant/cpu/chunk_pass-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace layercast {
namespace HWY_NAMESPACE {
namespace {

template <class Type>
class Copier {
 public:
  explicit Copier(const MatrixView& source) : prefetcher_(PagesOf(Type{}, source)) {}

  void Copy(const std::byte* from, std::size_t count, std::byte* to) {
    const bool stream = reinterpret_cast<std::uintptr_t>(to) % kLine == 0;
    const D d;
    const auto no_sign = hn::Set(d, Type::kNoSign);
    auto max = hn::Load(d, maxima_.lanes);
    const std::size_t whole = count * sizeof(Bits) / kPrefetchStep * kPrefetchStep;
    for (std::size_t i = 0; i < whole; i += kPrefetchStep) {
      prefetcher_.Next();
      for (std::size_t j = i; j < i + kPrefetchStep; j += hn::Lanes(d) * sizeof(Bits)) {
        const auto w = LoadAny(d, from + j);
        max = hn::Max(max, hn::And(w, no_sign));
        auto* lanes = reinterpret_cast<Bits*>(to + j);
        if (stream) {
          hn::Stream(w, d, lanes);
        } else {
          hn::StoreU(w, d, lanes);
        }
      }
    }
    hn::Store(max, d, maxima_.lanes);
    CopyRest(from + whole, count * sizeof(Bits) - whole, to + whole);
  }

  bool finite() const { return std::isfinite(maxima_.Amax()); }

 private:
  using Bits = typename Type::Bits;
  using D = hn::CappedTag<Bits, Maxima<Type>::kLanes>;
  static constexpr std::size_t kLine = 64;

  void CopyRest(const std::byte* from, std::size_t bytes, std::byte* to) {
    for (std::size_t i = 0; i < bytes; i += sizeof(Bits)) {
      Bits bits;
      std::memcpy(&bits, from + i, sizeof(Bits));
      maxima_.lanes[0] = std::max(maxima_.lanes[0], static_cast<Bits>(bits & Type::kNoSign));
    }
    std::memcpy(to, from, bytes);
  }

  PagePrefetcher prefetcher_;
  Maxima<Type> maxima_;
};

template <class Type>
bool CopyMatrix(const MatrixView& source, std::byte* values) {
  const MatrixView rows = AsOneRow(Type{}, source);
  Copier<Type> copier(rows);
  for (std::int64_t r = 0; r < rows.rows; ++r) {
    const auto cols = static_cast<std::size_t>(rows.cols);
    copier.Copy(rows.row(r), cols, values + static_cast<std::size_t>(r) * cols * sizeof(typename Type::Bits));
  }
  return copier.finite();
}

}  // namespace

bool CopyRows(const MatrixView& source, std::byte* values) {
  return ForType(source.dtype, [&](auto type) { return CopyMatrix<decltype(type)>(source, values); });
}

}  // namespace HWY_NAMESPACE
}  // namespace layercast
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace layercast {

HWY_EXPORT(CopyRows);

bool CpuCopy(const QuantizeJob& job) {
  if (job.source.rows == 0 || job.source.cols == 0) return true;
  return HWY_DYNAMIC_DISPATCH(CopyRows)(job.source, job.values);
}

}  // namespace layercast
#endif
