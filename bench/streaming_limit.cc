#include "bench/streaming_limit.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/streaming_limit.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace layercast::bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr std::size_t kStep = 128;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kGroup = 4 * kPage;

// Both lines of the place in the next four pages that step `i` of this group stands for.
HWY_INLINE void Prefetch(const std::uint8_t* from, std::size_t i) {
  const std::size_t step = i % kGroup / kStep;
  const std::uint8_t* at = from + i / kGroup * kGroup + kGroup + step % 4 * kPage + step / 4 * kStep;
  hwy::Prefetch(at);
  hwy::Prefetch(at + kStep / 2);
}

void StreamTwoToOne(ReadPattern pattern, const std::byte* source, std::size_t bytes, std::uint8_t* destination) {
  const hn::CappedTag<std::uint8_t, kStep / 2> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto* from = reinterpret_cast<const std::uint8_t*>(source);
  for (std::size_t i = 0; i < bytes; i += kStep) {
    if (pattern == ReadPattern::kInterleaved && i + kGroup < bytes) Prefetch(from, i);
    for (std::size_t j = i; j < i + kStep; j += 2 * lanes) {
      hn::Stream(hn::Or(hn::Load(d, from + j), hn::Load(d, from + j + lanes)), d, destination + j / 2);
    }
  }
  hwy::FlushStream();
}

}  // namespace layercast::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace layercast::bench {

HWY_EXPORT(StreamTwoToOne);

void StreamTwoToOne(ReadPattern pattern, const std::byte* source, std::size_t bytes, std::uint8_t* destination) {
  HWY_DYNAMIC_DISPATCH(StreamTwoToOne)(pattern, source, bytes, destination);
}

}  // namespace layercast::bench
#endif
