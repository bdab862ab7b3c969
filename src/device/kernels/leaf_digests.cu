#include "src/device/kernels/leaf_digests.h"

#include <cuda_runtime.h>

#include "src/device/cuda/call.h"
#include "src/device/cuda/launch.cuh"
#include "src/device/kernels/xxh3_body.cuh"

namespace layercast {
namespace {

constexpr unsigned kThreads = 64;  // few, so that a tensor of some MiB still spreads over all multiprocessors

// The sum over the four lanes of a team. All lanes of a warp must call it.
__device__ std::uint64_t SumOfTeam(std::uint64_t value) {
  for (unsigned lane = 1; lane < xxh3::kTeam; lane *= 2) {
    value += __shfl_xor_sync(0xffffffffU, static_cast<unsigned long long>(value), static_cast<int>(lane));
  }
  return value;
}

template <class Body>
__global__ void __launch_bounds__(kThreads) DigestLeaves(const __grid_constant__ xxh3::LeafArguments arguments) {
  const std::uint64_t thread = std::uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  const Body body(arguments, thread / xxh3::kTeam, threadIdx.x % xxh3::kTeam);
  const xxh3::Uint128 fold = body.Fold();
  body.Finish({SumOfTeam(fold.low), SumOfTeam(fold.high)});
}

class OnDevice {
 public:
  explicit OnDevice(CUstream_st* stream) : stream_(stream) {}

  template <class Body>
  void Run(const xxh3::LeafArguments& arguments, std::uint64_t leaves) const {
    constexpr unsigned kTeams = kThreads / xxh3::kTeam;
    const auto blocks = static_cast<std::int64_t>((leaves - 1) / kTeams + 1);
    LaunchKernel(&DigestLeaves<Body>, blocks, dim3(kThreads), stream_, "leaves", arguments);
  }

 private:
  CUstream_st* stream_;
};

// Used in place of OnDevice: loads the kernels that it would start.
class LoadOnDevice {
 public:
  template <class Body>
  void Run(const xxh3::LeafArguments& /*arguments*/, std::uint64_t /*leaves*/) const {
    LoadKernel(reinterpret_cast<const void*>(&DigestLeaves<Body>));
  }
};

}  // namespace

void LoadLeafDigests() {
  alignas(16) const unsigned char bytes[5] = {};
  for (const int offset : {0, 4, 1}) xxh3::RunLeafDigests(LoadOnDevice(), {bytes + offset, 1, nullptr});
}

void CudaLeafDigests(const std::byte* bytes, std::uint64_t count, Digest* leaves, CUstream_st* stream) {
  xxh3::RunLeafDigests(OnDevice(stream), {reinterpret_cast<const unsigned char*>(bytes), count,
                                          reinterpret_cast<xxh3::LeafDigest*>(leaves)});
}

}  // namespace layercast
