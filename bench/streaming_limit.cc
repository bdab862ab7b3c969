#include "bench/streaming_limit.h"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string_view>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/streaming_limit.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "hwy/targets.h"

HWY_BEFORE_NAMESPACE();
namespace layercast::bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr std::size_t kLine = 64;
constexpr std::size_t kStep = 4 * kLine;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kGroup = 4 * kPage;

// The lines of the place in the next four pages that step `i` of this group stands for.
HWY_INLINE void Prefetch(const std::uint8_t* from, std::size_t i) {
  const std::size_t step = i % kGroup / kStep;
  const std::uint8_t* at = from + i / kGroup * kGroup + kGroup + step % 2 * 2 * kPage + step / 2 * 2 * kLine;
  for (const std::size_t page : {std::size_t{0}, kPage}) {
    hwy::Prefetch(at + page);
    hwy::Prefetch(at + page + kLine);
  }
}

// Reads kReads vectors for each one that it writes; with 0 it writes none.
template <std::size_t kReads>
std::uint8_t Stream(ReadPattern pattern, const std::byte* source, std::size_t bytes, std::uint8_t* destination) {
  const hn::CappedTag<std::uint8_t, kLine> d;
  const std::size_t lanes = hn::Lanes(d);
  constexpr std::size_t kJoined = kReads == 0 ? 4 : kReads;
  const auto* from = reinterpret_cast<const std::uint8_t*>(source);
  auto all = hn::Zero(d);
  for (std::size_t i = 0; i < bytes; i += kStep) {
    if (pattern == ReadPattern::kInterleaved && i + kGroup < bytes) Prefetch(from, i);
    for (std::size_t j = i; j < i + kStep; j += kJoined * lanes) {
      auto joined = hn::Load(d, from + j);
      for (std::size_t k = 1; k < kJoined; ++k) joined = hn::Or(joined, hn::Load(d, from + j + k * lanes));
      if constexpr (kReads == 0) {
        all = hn::Or(all, joined);
      } else {
        hn::Stream(joined, d, destination + j / kReads);
      }
    }
  }
  hwy::FlushStream();
  return hn::GetLane(all);
}

std::uint8_t StreamThrough(ReadPattern pattern, Writes writes, const std::byte* source, std::size_t bytes,
                           std::uint8_t* destination) {
  switch (writes) {
    case Writes::kNone: return Stream<0>(pattern, source, bytes, destination);
    case Writes::kQuarter: return Stream<4>(pattern, source, bytes, destination);
    case Writes::kHalf: return Stream<2>(pattern, source, bytes, destination);
    default: return Stream<1>(pattern, source, bytes, destination);
  }
}

}  // namespace layercast::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace layercast::bench {

HWY_EXPORT(StreamThrough);

std::uint8_t StreamThrough(ReadPattern pattern, Writes writes, const std::byte* source, std::size_t bytes,
                           std::uint8_t* destination) {
  return HWY_DYNAMIC_DISPATCH(StreamThrough)(pattern, writes, source, bytes, destination);
}

void ChooseTarget(int& argc, char** argv) {
  constexpr std::string_view kOption = "--target=";
  char** const end = std::remove_if(argv + 1, argv + argc, [&](const char* argument) {
    if (!std::string_view(argument).starts_with(kOption)) return false;
    for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
      if (argument + kOption.size() == std::string_view(hwy::TargetName(target))) {
        hwy::SetSupportedTargetsForTest(target);
        return true;
      }
    }
    std::cerr << "this machine and this build have no " << argument + kOption.size() << '\n';
    std::exit(2);
  });
  argc = static_cast<int>(end - argv);
}

}  // namespace layercast::bench
#endif
