// The fastest pass over memory that reads some bytes and writes some, with no arithmetic: what quantize kernels are
// measured against. Wide loads and non-temporal stores.
#pragma once

#include <cstddef>
#include <cstdint>

namespace layercast::bench {

// What asks for the memory: only the processor itself, or four interleaved pages too (src/tensor/page_prefetch.h).
// Which is faster depends on the processor; the limit is the faster one.
enum class ReadPattern { kSequential, kInterleaved };

// How many bytes are written for those that are read.
enum class Writes { kNone, kQuarter, kHalf, kAll };

// Bytes written when `bytes` are read.
constexpr std::int64_t Written(Writes writes, std::int64_t bytes) {
  switch (writes) {
    case Writes::kNone: return 0;
    case Writes::kQuarter: return bytes / 4;
    case Writes::kHalf: return bytes / 2;
    default: return bytes;
  }
}

// Reads `bytes` at `source`, a multiple of 16 KiB, and writes its part of them; both 64-byte aligned. The result stands
// for all that was read where nothing was written.
std::uint8_t StreamThrough(ReadPattern pattern, Writes writes, const std::byte* source, std::size_t bytes,
                           std::uint8_t* destination);

}  // namespace layercast::bench
