// The fastest pass over memory that reads some bytes and writes some, without arithmetic, by wide loads and
// non-temporal stores. Quantize kernels are measured against it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace layercast::bench {

// How memory is prefetched: by the processor alone, or also explicitly, four interleaved pages at a time
// (src/tensor/kernels/page_prefetch.h). Which is faster depends on the processor, and the limit is the faster one.
enum class ReadPattern { kSequential, kInterleaved };

// What fraction of the bytes that are read is written.
enum class Writes { kNone, kQuarter, kHalf, kAll };

// How many bytes are written when `bytes` are read.
constexpr std::int64_t Written(Writes writes, std::int64_t bytes) {
  switch (writes) {
    case Writes::kNone: return 0;
    case Writes::kQuarter: return bytes / 4;
    case Writes::kHalf: return bytes / 2;
    default: return bytes;
  }
}

// Reads `bytes` at `source`, a multiple of 16 KiB, and writes the fraction of them; both addresses are 64-byte aligned.
// The result depends on all that was read, so that reading cannot be optimized away when nothing is written.
std::uint8_t StreamThrough(ReadPattern pattern, Writes writes, const std::byte* source, std::size_t bytes,
                           std::uint8_t* destination);

// Chooses the instruction set of `--target=NAME`, for kernels and limits, and removes that from the arguments.
void ChooseTarget(int& argc, char** argv);

}  // namespace layercast::bench
