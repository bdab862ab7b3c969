// The fastest pass over memory that reads two bytes and writes one, with no arithmetic: what quantize kernels are
// measured against. Wide loads and non-temporal stores.
#pragma once

#include <cstddef>
#include <cstdint>

namespace layercast::bench {

// What asks for the memory: only the processor itself, or four interleaved pages too (src/tensor/page_prefetch.h).
// Which is faster depends on the processor; the limit is the faster one.
enum class ReadPattern { kSequential, kInterleaved };

// Reads `bytes` at `source` and writes half as many; both 64-byte aligned, `bytes` a multiple of 16 KiB.
void StreamTwoToOne(ReadPattern pattern, const std::byte* source, std::size_t bytes, std::uint8_t* destination);

}  // namespace layercast::bench
