// Digests of the leaves of bytes in device memory, made there (src/base/digest.h). The call puts one kernel on the
// stream and returns, so it may be captured into a graph; the calling thread's device is the stream's, and all pointers
// are of its memory. Includes nothing of CUDA, and is C++17 too.
//
// What bounds it, as it is written: reading the bytes, once, from memory. A thread needs 12 instructions for 16 bytes;
// in the time that memory needs for them an H100 or A100 issues ten times as many. So much for bytes aligned to 16, and
// enough of them (some tens of MiB) to keep all multiprocessors busy. Any other alignment will do: by loads of 4 bytes,
// or of one, slower. Not measured yet.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/base/leaves.h"

struct CUstream_st;  // cudaStream_t is a pointer to it

namespace layercast {

struct Digest;  // layercast/version.h

// Loads the kernels onto the calling thread's device: else each is when it is first started (call.h).
void LoadLeafDigests();

// leaves[i] becomes XXH3-128 (default secret, seed 0) of leaf i alone, for each of NumLeaves(count). Throws Error where
// the launch fails.
void CudaLeafDigests(const std::byte* bytes, std::uint64_t count, Digest* leaves, CUstream_st* stream);

}  // namespace layercast
