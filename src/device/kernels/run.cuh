// Runs the bodies of kernels (team.cuh) on a device.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "layercast/error.h"
#include "src/device/cuda/call.h"
#include "src/device/cuda/launch.cuh"
#include "src/device/kernels/team.cuh"

namespace layercast::cuda {

// The largest of the values of `kSharers` threads. Every thread of the block must call it. A block that is one team of
// several warps may call it only once.
template <int kSharers>
__device__ std::uint32_t Share(std::uint32_t value) {
  constexpr unsigned kAll = 0xffffffffU;
  if constexpr (kSharers == 1) return value;
  if constexpr (kSharers > 1) {
    for (int lane = 1; lane < kSharers; lane *= 2) value = max(value, __shfl_xor_sync(kAll, value, lane));
    return value;
  }
  value = __reduce_max_sync(kAll, value);
  if (blockDim.x == kWarp) return value;
  __shared__ std::uint32_t of_warps[kMaxTeam / kWarp];
  const unsigned lane = threadIdx.x % kWarp;
  if (lane == 0) of_warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  return __reduce_max_sync(kAll, lane < blockDim.x / kWarp ? of_warps[lane] : 0);
}

template <class Body>
__global__ void __launch_bounds__(Body::kMaxThreads, Body::kMinBlocks)
    RunBody(const __grid_constant__ typename Body::Arguments arguments) {
  const Seat seat{static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x),
                  static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y};
  Body body(arguments, seat);
  std::uint32_t amax[Body::kMaxima];
  body.Scan(amax);
  for (int i = 0; i < Body::kMaxima; ++i) amax[i] = Share<Body::kSharers>(amax[i]);
  body.Encode(amax);
}

class OnDevice {
 public:
  explicit OnDevice(CUstream_st* stream) : stream_(stream) {}

  template <class Body>
  void Run(const typename Body::Arguments& arguments, const Grid& grid) const {
    if (grid.teams == 0) return;
    if (grid.teams > kMostTeams) throw Error(ErrorCode::kInvalidArgument, "a weight is too large for one kernel");
    const std::int64_t blocks = (grid.teams + grid.teams_per_block - 1) / grid.teams_per_block;
    const dim3 block(static_cast<unsigned>(grid.threads), static_cast<unsigned>(grid.teams_per_block));
    LaunchKernel(&RunBody<Body>, blocks, block, stream_, "a weight", arguments);
  }

 private:
  static constexpr std::int64_t kMostTeams = 0x7fffffff;  // blocks are no more than teams
  CUstream_st* stream_;
};

// Used in place of OnDevice: loads the kernels that it would start.
class LoadOnDevice {
 public:
  template <class Body>
  void Run(const typename Body::Arguments& /*arguments*/, const Grid& /*grid*/) const {
    LoadKernel(reinterpret_cast<const void*>(&RunBody<Body>));
  }
};

}  // namespace layercast::cuda
