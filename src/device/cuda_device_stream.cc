#include "src/device/cuda_device_stream.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "layercast/error.h"
#include "src/device/cuda/call.h"
#include "src/device/cuda/row_copy.h"
#include "src/device/kernels/device_scan_kernels.h"
#include "src/device/kernels/leaf_digests.h"

namespace layercast {
namespace {

// An element of a type is NaN or infinite if (bits & mask) == value. If mask is 0, none is.
struct NonFinite {
  std::uint64_t mask = 0;
  std::uint64_t value = 0;
};

NonFinite NonFiniteOf(DType dtype) {
  switch (dtype) {
    case DType::kF8E4M3: return {0x7F, 0x7F};
    case DType::kF8E5M2: return {0x7C, 0x7C};
    case DType::kF8E8M0: return {0xFF, 0xFF};
    case DType::kF8E4M3FNUZ:
    case DType::kF8E5M2FNUZ: return {0xFF, 0x80};
    case DType::kF16: return {0x7C00, 0x7C00};
    case DType::kBF16: return {0x7F80, 0x7F80};
    case DType::kF32: return {0x7F80'0000, 0x7F80'0000};
    case DType::kF64: return {0x7FF0'0000'0000'0000, 0x7FF0'0000'0000'0000};
    case DType::kC64: throw Error(ErrorCode::kUnsupported, "CUDA devices do not check complex numbers");
    default: return {};
  }
}

CudaFaultWord* WordAt(std::uint64_t* fault) { return reinterpret_cast<CudaFaultWord*>(fault); }

}  // namespace

CudaDeviceStream::CudaDeviceStream(int device) : stream_(device) {
  const OnCudaDevice scope(device);
  LoadScanKernels();
  LoadLeafDigests();
}

void CudaDeviceStream::Copy(const std::byte* from, std::byte* to, std::size_t bytes) {
  const OnCudaDevice scope(stream_.device());
  CheckCuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_.handle()), "cudaMemcpyAsync", stream_.device());
}

void CudaDeviceStream::Pack(const RegionView& view, std::byte* to) {
  switch (HowToCopyRows(view.row_bytes, view.rows, view.stride)) {
    case RowCopy::kNone: return;
    case RowCopy::kOneRun: return Copy(view.base, to, view.num_bytes());
    case RowCopy::kPitched: return CopyRows(view.base, view.stride, to, view.row_bytes, view.row_bytes, view.rows);
    case RowCopy::kSingly: break;
  }
  for (std::size_t row = 0; row < view.rows; ++row) Copy(view.row(row), to + row * view.row_bytes, view.row_bytes);
}

void CudaDeviceStream::CopyRows(const std::byte* from, std::size_t from_stride, std::byte* to, std::size_t to_stride,
                                std::size_t row_bytes, std::size_t rows) {
  const OnCudaDevice scope(stream_.device());
  CheckCuda(
      cudaMemcpy2DAsync(to, to_stride, from, from_stride, row_bytes, rows, cudaMemcpyDeviceToDevice, stream_.handle()),
      "cudaMemcpy2DAsync", stream_.device());
}

void CudaDeviceStream::Fill(std::byte* to, std::byte value, std::size_t bytes) {
  const OnCudaDevice scope(stream_.device());
  CheckCuda(cudaMemsetAsync(to, std::to_integer<int>(value), bytes, stream_.handle()), "cudaMemsetAsync",
            stream_.device());
}

void CudaDeviceStream::FindAmax(DType dtype, const std::byte* from, std::int64_t count, float* amax,
                                std::uint64_t* fault) {
  const OnCudaDevice scope(stream_.device());
  CudaAmax({dtype, from, 1, count, count * BitsPerElement(dtype) / 8, 0}, amax, WordAt(fault), stream_.handle());
}

void CudaDeviceStream::FindAxisAmax(DType dtype, const std::byte* from, const AxisSplit& split, float* amax,
                                    std::uint64_t* fault) {
  const OnCudaDevice scope(stream_.device());
  const std::int64_t size = BitsPerElement(dtype) / 8;
  if (split.last == 1) {
    return CudaRowAmax({dtype, from, split.outer, split.reduced, split.reduced * size, 0}, amax, WordAt(fault),
                       stream_.handle());
  }
  CudaColumnAmax({dtype, from, split.reduced, split.last, split.last * size, 0}, split.outer, amax, WordAt(fault),
                 stream_.handle());
}

void CudaDeviceStream::FindNonFinite(DType dtype, const std::byte* from, std::int64_t count, std::uint64_t* fault) {
  const OnCudaDevice scope(stream_.device());
  const NonFinite wrong = NonFiniteOf(dtype);
  if (wrong.mask == 0) return;
  CudaFind(BitsPerElement(dtype) / 8, from, count, wrong.mask, wrong.value, WordAt(fault), stream_.handle());
}

void CudaDeviceStream::LeafDigests(const std::byte* from, std::size_t bytes, Digest* leaves) {
  const OnCudaDevice scope(stream_.device());
  CudaLeafDigests(from, bytes, leaves, stream_.handle());
}

DeviceStream::Ticket CudaDeviceStream::Record() {
  while (!recorded_.empty() && recorded_.front().event.IsDone()) Forget();
  if (spare_.empty()) spare_.emplace_back(stream_.device());
  CudaEvent event = std::move(spare_.back());
  spare_.pop_back();
  event.Record(stream_);
  recorded_.push_back({++last_, std::move(event)});
  return last_;
}

void CudaDeviceStream::Wait(Ticket ticket) {
  const auto later = std::ranges::upper_bound(recorded_, ticket, {}, &Recorded::ticket);
  if (later == recorded_.begin()) return;
  std::prev(later)->event.Synchronize();  // all before it are reached too: one sleep, not several
  while (!recorded_.empty() && recorded_.front().ticket <= ticket) Forget();
}

void CudaDeviceStream::Forget() {
  spare_.push_back(std::move(recorded_.front().event));
  recorded_.pop_front();
}

std::shared_ptr<DeviceStream> OpenCudaStream(const Device& device) {
  return std::make_shared<CudaDeviceStream>(device.index);
}

}  // namespace layercast
