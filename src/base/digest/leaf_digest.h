// XXH3-128 of a leaf's bytes by the widest instructions that pay. xxHash chooses its code when it is compiled, so it is
// compiled here once more for AVX2, in a file of its own. (Its code for AVX-512 is faster from a cache, and slower from
// memory: docs/benchmarks.md.) Used by digest.cc.
#pragma once

#include <cstddef>
#include <cstdint>

namespace layercast {

#ifdef __x86_64__

// Value.
struct LeafHash {
  std::uint64_t high;
  std::uint64_t low;
};

// To be called only where there is AVX2.
LeafHash HashLeafByAvx2(const void* bytes, std::size_t count);

#endif

}  // namespace layercast
