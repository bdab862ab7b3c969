// The CUDA kernels that look through tensors in device memory, for largest magnitudes and for NaN and infinity. Each
// call puts one kernel on the given stream and returns. It neither waits nor allocates, so it may be captured into a
// graph. The functions are there if the build has CUDA (LAYERCAST_HAVE_CUDA). Includes nothing of CUDA, and is valid
// C++17.
//
// The calling thread's device must be the stream's, and all pointers must be to its memory. Any alignment of a matrix
// will do; one that is aligned to 16 bytes, with rows of whole 16 bytes, is fastest. A call throws Error if a launch
// fails.
#pragma once

#include <cstdint>

#include "src/device/kernels/cuda_fault.h"
#include "src/device/kernels/cuda_matrix.h"

namespace layercast {

// Loads all kernels of this header onto the calling thread's device. Otherwise each is loaded when it is first started,
// which may wait for everything that runs on the device, including NCCL's kernels, which wait for their peers.
void LoadScanKernels();

// CudaAmax merges the largest finite magnitude of the piece into `*amax`, which must be set to 0 first. CudaRowAmax
// writes that of each of the piece's rows to amax[first_row ...].
void CudaAmax(const CudaMatrix& piece, float* amax, CudaFaultWord* fault, CUstream_st* stream);
void CudaRowAmax(const CudaMatrix& piece, float* amax, CudaFaultWord* fault, CUstream_st* stream);
// Merges the largest finite magnitude of each column of each of `matrices` packed matrices, one behind the other, into
// amax [matrices, cols], which must be set to 0 first.
void CudaColumnAmax(const CudaMatrix& first, std::int64_t matrices, float* amax, CudaFaultWord* fault,
                    CUstream_st* stream);

// Merges into `fault` the first element for which (bits & mask) == value. Elements have 1, 2, 4 or 8 bytes, and are
// aligned to their size.
void CudaFind(int element_bytes, const void* from, std::int64_t count, std::uint64_t mask, std::uint64_t value,
              CudaFaultWord* fault, CUstream_st* stream);

}  // namespace layercast
