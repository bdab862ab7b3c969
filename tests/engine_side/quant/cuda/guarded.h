// Device memory that shows when bytes beside it were written, for tests of kernels.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "src/device/cuda/cuda_memory.h"
#include "src/device/cuda/cuda_stream.h"

namespace layercast {

inline void ExpectDone(cudaError_t status) { ASSERT_EQ(status, cudaSuccess) << cudaGetErrorString(status); }

// Device memory with a copy of some bytes, `offset` bytes behind an aligned address and with bytes on both sides that
// nobody may touch.
class Guarded {
 public:
  Guarded(CudaStream& stream, CudaMemory& memory, std::span<const std::byte> bytes, std::size_t offset)
      : stream_(stream),
        size_(bytes.size()),
        offset_(kGuard + offset),
        there_(memory, kGuard + offset + size_ + kGuard) {
    std::vector<std::byte> all(there_.size(), kPattern);
    std::copy(bytes.begin(), bytes.end(), all.begin() + static_cast<std::ptrdiff_t>(offset_));
    ExpectDone(cudaMemcpyAsync(there_.data(), all.data(), all.size(), cudaMemcpyHostToDevice, stream_.handle()));
    stream_.Synchronize();
  }

  std::byte* data() const { return there_.data() + offset_; }

  std::vector<std::byte> Read() const {
    std::vector<std::byte> all(there_.size());
    ExpectDone(cudaMemcpyAsync(all.data(), there_.data(), all.size(), cudaMemcpyDeviceToHost, stream_.handle()));
    stream_.Synchronize();
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(offset_);
    const auto last = first + static_cast<std::ptrdiff_t>(size_);
    const auto untouched = [](std::byte byte) { return byte == kPattern; };
    EXPECT_TRUE(std::all_of(all.begin(), first, untouched) && std::all_of(last, all.end(), untouched))
        << "bytes beside an output were written";
    return {first, last};
  }

 private:
  static constexpr std::size_t kGuard = 256;
  static constexpr std::byte kPattern{0x5a};

  CudaStream& stream_;
  std::size_t size_;
  std::size_t offset_;
  Buffer there_;
};

}  // namespace layercast
