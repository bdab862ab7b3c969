// Powers of one base, with the bits of torch's. Used where the frequencies of rotary embeddings are made (rope.h).
#pragma once

#include <span>
#include <vector>

namespace layercast {

// base ^ exponent for each exponent: the bits of torch.pow(base, exponents) on an x86 CPU with AVX2, on whatever CPU
// this runs. `base` is positive, and the powers are normal numbers. Pure function; thread-safe.
//
// torch computes blocks of two vectors by Sleef, and what is left over by the C library's powf. The two differ in the
// last bit of about 2 % of the powers of rotary embeddings, so it matters where the last block ends: at a multiple of
// 16 with AVX2, as here, of 32 with AVX-512, of 8 with NEON. Within a block the CPU makes no difference: in Sleef's
// sources the variants that torch takes for these three do the same operations, all of which fuse products with sums
// (AVX2 was measured, the others read). So where there is a multiple of 32 exponents, as with 64, 128, 192 or 256
// rotated elements of a head, torch has these bits on all of them. The C library's powf, of glibc 2.28 and newer, gave
// the same bits with fused operations and without on a million powers of rotary embeddings.
std::vector<float> Powers(float base, std::span<const float> exponents);

}  // namespace layercast
