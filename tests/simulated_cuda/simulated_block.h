// Runs the threads of a kernel's blocks on one thread of the host. A thread of a block runs until it ends or waits for
// others of its block, as a device's threads do at a barrier and when lanes of a warp exchange values; then another one
// runs. Used by simulated_launch.h, and by kernels that are
// compiled for the host (simulated_kernels.h).
#pragma once

#include <vector_types.h>

#include <cstdint>
#include <functional>

namespace simulated_cuda {

// Where the running thread of a kernel is. What CUDA calls threadIdx, blockIdx, blockDim and gridDim.
struct Place {
  uint3 thread;
  uint3 block;
  dim3 threads;  // of a block
  dim3 blocks;
};
const Place& Here();

// Returns when all threads of the block have called it, also those that CUDA would not wait for because they have
// ended. Throws, as the next two do, if some never will.
void AwaitBlock();

// The value that the lane whose number differs in the bits of `mask` has passed. All 32 lanes of the warp must call it.
std::uint64_t ExchangeXor(std::uint64_t value, unsigned mask);

// The largest of the values that the 32 lanes of the warp pass.
std::uint32_t LargestOfWarp(std::uint32_t value);

// Calls `thread` once for every thread of every block, block by block. Throws what a thread throws, and if threads wait
// for each other in vain; then the other threads are left as they are.
void RunBlocks(const dim3& blocks, const dim3& threads, const std::function<void()>& thread);

}  // namespace simulated_cuda
