#include "src/tensor/kernels/stream_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "src/base/rounding.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/tensor/kernels/stream_copy.cc"
#include "hwy/foreach_target.h"  // includes this file once per target
// After foreach_target.h:
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "src/tensor/kernels/load-inl.h"

HWY_BEFORE_NAMESPACE();
namespace layercast {
namespace HWY_NAMESPACE {

// `to` begins a cache line. Returns how many bytes were copied: all but those of the last step that is not whole.
std::size_t CopyPastCaches(const std::byte* from, std::size_t bytes, std::byte* to) {
  constexpr std::size_t kStep = 256;
  const hn::CappedTag<std::uint8_t, kStep> d;
  const std::size_t whole = bytes / kStep * kStep;
  for (std::size_t i = 0; i < whole; i += kStep) {
    for (std::size_t j = i; j < i + kStep; j += hn::Lanes(d)) {
      hn::Stream(LoadAny(d, from + j), d, reinterpret_cast<std::uint8_t*>(to + j));
    }
  }
  hwy::FlushStream();  // so that others see these bytes before anything that this thread writes later
  return whole;
}

}  // namespace HWY_NAMESPACE
}  // namespace layercast
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace layercast {
namespace {

constexpr std::size_t kWorthStreaming = 128U << 10;
constexpr std::size_t kLine = 64;
constexpr std::size_t kShare = 1U << 20;  // what a thread copies before it takes more

}  // namespace

HWY_EXPORT(CopyPastCaches);

void StreamCopy(const std::byte* from, std::size_t bytes, std::byte* to) {
  std::size_t done = 0;
  if (bytes >= kWorthStreaming) {
    done = -reinterpret_cast<std::uintptr_t>(to) % kLine;
    std::memcpy(to, from, done);
    done += HWY_DYNAMIC_DISPATCH(CopyPastCaches)(from + done, bytes - done, to + done);
  }
  if (done < bytes) std::memcpy(to + done, from + done, bytes - done);
}

void StreamCopy(const std::byte* from, std::size_t bytes, std::byte* to, WorkerPool& pool) {
  pool.For(CeilDivide(bytes, kShare), [&](std::size_t i) {
    const std::size_t begin = i * kShare;
    StreamCopy(from + begin, std::min(kShare, bytes - begin), to + begin);
  });
}

}  // namespace layercast
#endif
