// The CUDA kernels that look through tensors in device memory: for largest magnitudes, and for what is no finite
// number. Each call puts one kernel on the given stream and returns: no wait, no allocation, so it may be captured into
// a graph. There where the build has CUDA (LAYERCAST_HAVE_CUDA). Includes nothing of CUDA, and is C++17 too.
//
// The calling thread's device is the stream's. All pointers are of its memory. Any alignment of a matrix will do; one
// that is aligned to 16 bytes, with rows of whole 16 bytes, is quick. A call throws Error where a launch fails.
#pragma once

#include <cstdint>

#include "src/device/cuda_fault.h"
#include "src/device/cuda_matrix.h"

namespace layercast {

// Loads all kernels of this header onto the calling thread's device; else each is loaded when it is first started. That
// may wait for all that runs on the device, NCCL's kernels too, which wait for their peers.
void LoadScanKernels();

// The largest finite magnitude of the piece, merged into `*amax`: set it to 0 first. Of each row of the weight, into
// amax[first_row ...].
void CudaAmax(const CudaMatrix& piece, float* amax, CudaFaultWord* fault, CUstream_st* stream);
void CudaRowAmax(const CudaMatrix& piece, float* amax, CudaFaultWord* fault, CUstream_st* stream);
// Of each column of each of so many packed matrices, one behind the other, merged into amax [matrices, cols].
void CudaColumnAmax(const CudaMatrix& first, std::int64_t matrices, float* amax, CudaFaultWord* fault,
                    CUstream_st* stream);

// Merges into `fault` the first element of which (bits & mask) == value. Elements have 1, 2, 4 or 8 bytes, and are
// aligned to them.
void CudaFind(int element_bytes, const void* from, std::int64_t count, std::uint64_t mask, std::uint64_t value,
              CudaFaultWord* fault, CUstream_st* stream);

}  // namespace layercast
