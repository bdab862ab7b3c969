// Digests of the leaves of bytes in device memory, computed there (src/base/digest/digest.h). The call puts one kernel
// on the stream and returns, so it may be captured into a graph. The calling thread's device must be the stream's, and
// all pointers must be to its memory. Includes nothing of CUDA, and is valid C++17.
//
// By design, it is bounded by reading the bytes once from memory. A thread needs 12 instructions for 16 bytes, and in
// the time that memory takes for these, an H100 or A100 issues ten times as many. This holds for bytes that are aligned
// to 16 and enough (some tens of MiB) to keep all multiprocessors busy. Any other alignment works too, but more slowly,
// by loads of 4 bytes or of one. Not measured yet.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/base/digest/leaves.h"

struct CUstream_st;  // cudaStream_t is a pointer to it

namespace layercast {

struct Digest;  // layercast/version.h

// Loads the kernels onto the calling thread's device. Otherwise each is loaded when it is first started (LoadKernel in
// call.h).
void LoadLeafDigests();

// Sets leaves[i] to XXH3-128 (default secret, seed 0) of leaf i alone, for each of NumLeaves(count). Throws Error if
// the launch fails.
void CudaLeafDigests(const std::byte* bytes, std::uint64_t count, Digest* leaves, CUstream_st* stream);

}  // namespace layercast
