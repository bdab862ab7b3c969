// DeviceStream by CUDA: copies by the copy engines, all else by kernels.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <deque>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine_side/device/device_stream.h"
#include "engine_side/device/move_kernels.h"
#include "engine_side/device/walks.h"
#include "engine_side/quant/cuda_codes.h"
#include "engine_side/quant/cuda_kernels.h"
#include "engine_side/quant/cuda_recipes.h"
#include "layercast/error.h"
#include "src/base/check.h"
#include "src/cuda/call.h"
#include "src/cuda/leaf_digests.h"
#include "src/cuda/memory.h"
#include "src/cuda/row_copy.h"
#include "src/cuda/stream.h"

namespace layercast {
namespace {

int ElementBytes(DType dtype) { return BitsPerElement(dtype) / 8; }

std::uint8_t* Codes(std::span<std::byte> bytes) { return reinterpret_cast<std::uint8_t*>(bytes.data()); }

// The bits in which all elements of a type are alike that are no finite numbers; mask 0: it has none.
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

// Rows that a copy of two dimensions brings to their places in a tensor, or from there.
struct Pitched {
  std::size_t at;  // of the first; bytes, as all of it
  std::size_t rows, row_bytes, stride;
};

// Elements [first, first + count) of a walk as such. Empty: a kernel does better, or has to. One does where rows are
// short.
std::optional<Pitched> PitchedOf(DType dtype, const ElementWalk& walk, std::int64_t first, std::int64_t count) {
  constexpr std::size_t kFewestBytes = 512;  // of a row: what a warp reads at once, by words of 16 bytes
  const std::optional<WalkRows> of = RowsOf(walk, first, count);
  if (!of) return std::nullopt;
  const auto bytes = [size = ElementBytes(dtype)](std::int64_t elements) {
    return static_cast<std::size_t>(elements) * static_cast<std::size_t>(size);
  };
  const Pitched rows{bytes(of->at), static_cast<std::size_t>(of->rows), bytes(of->cols), bytes(of->stride)};
  const bool suits = HowToCopyRows(rows.row_bytes, rows.rows, rows.stride) == RowCopy::kPitched;
  return suits && rows.row_bytes >= kFewestBytes ? std::optional(rows) : std::nullopt;
}

class CudaDeviceStream final : public DeviceStream {
 public:
  explicit CudaDeviceStream(int device) : stream_(device) {
    const OnCudaDevice scope(device);
    LoadCudaKernels();
    LoadMoveKernels();
    LoadLeafDigests();
  }

  Device device() const override { return {Device::Kind::kCuda, stream_.device()}; }
  MemoryResource& memory() override { return memory_; }
  MemoryResource& pinned() override { return pinned_; }

  void Copy(const std::byte* from, std::byte* to, std::size_t bytes) override {
    const OnCudaDevice scope(stream_.device());
    Check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_.handle()), "cudaMemcpyAsync");
  }
  void Pack(const RegionView& view, std::byte* to) override {
    switch (HowToCopyRows(view.row_bytes, view.rows, view.stride)) {
      case RowCopy::kNone: return;
      case RowCopy::kOneRun: return Copy(view.base, to, view.num_bytes());
      case RowCopy::kPitched: return CopyPitched(view, to);
      case RowCopy::kSingly: break;
    }
    for (std::size_t row = 0; row < view.rows; ++row) Copy(view.row(row), to + row * view.row_bytes, view.row_bytes);
  }
  void Fill(std::byte* to, std::byte value, std::size_t bytes) override {
    const OnCudaDevice scope(stream_.device());
    Check(cudaMemsetAsync(to, std::to_integer<int>(value), bytes, stream_.handle()), "cudaMemsetAsync");
  }
  void Scatter(DType from, const std::byte* packed, DType to_dtype, std::byte* to, const ElementWalk& walk,
               std::int64_t first, std::int64_t count) override {
    const OnCudaDevice scope(stream_.device());
    const std::optional<Pitched> rows = from == to_dtype ? PitchedOf(from, walk, first, count) : std::nullopt;
    if (rows) {
      CopyRows(packed, rows->row_bytes, to + rows->at, rows->stride, *rows);
    } else if (from == to_dtype) {
      CudaScatter(ElementBytes(from), packed, to, walk, first, count, stream_.handle());
    } else {
      CudaScatterCast(from, packed, to_dtype, to, walk, first, count, stream_.handle());
    }
  }
  void Gather(DType dtype, const std::byte* from, const ElementWalk& walk, std::int64_t first, std::int64_t count,
              std::byte* packed) override {
    const OnCudaDevice scope(stream_.device());
    if (const std::optional<Pitched> rows = PitchedOf(dtype, walk, first, count)) {
      return CopyRows(from + rows->at, rows->stride, packed, rows->row_bytes, *rows);
    }
    CudaGather(ElementBytes(dtype), from, walk, first, count, packed, stream_.handle());
  }
  void Zero(DType dtype, std::byte* to, const ElementWalk& walk) override {
    const OnCudaDevice scope(stream_.device());
    CudaZero(ElementBytes(dtype), to, walk, NumElements(walk), stream_.handle());
  }
  void Quantize(const Recipe& recipe, const MatrixView& rows, std::int64_t first_row, const AmaxInput& amax,
                std::span<const KernelTensorView> outputs, std::uint64_t* fault) override;
  void Rescale(std::span<std::byte> codes, float from, float to) override {
    const OnCudaDevice scope(stream_.device());
    CudaRescale(Codes(codes), std::ssize(codes), from, to, stream_.handle());
  }
  void RescaleNvfp4(std::span<std::byte> codes, std::span<std::byte> scales, float from, float to) override {
    const OnCudaDevice scope(stream_.device());
    CudaRescaleNvfp4(Codes(codes), Codes(scales), std::ssize(scales), from, to, stream_.handle());
  }
  void Dequantize(const Recipe& recipe, std::span<const KernelTensorView> tensors, DType dtype,
                  std::byte* values) override {
    const OnCudaDevice scope(stream_.device());
    CudaDequantize(CodesOf(recipe.format(), tensors), dtype, values, stream_.handle());
  }
  void NegateExponential(DType dtype, const std::byte* from, std::int64_t count, float* to) override {
    const OnCudaDevice scope(stream_.device());
    CudaNegateExponential(dtype, from, count, to, stream_.handle());
  }
  void FindAmax(DType dtype, const std::byte* from, std::int64_t count, float* amax, std::uint64_t* fault) override {
    const OnCudaDevice scope(stream_.device());
    CudaAmax({dtype, from, 1, count, count * BitsPerElement(dtype) / 8, 0}, amax,
             reinterpret_cast<CudaFaultWord*>(fault), stream_.handle());
  }
  void FindAxisAmax(DType dtype, const std::byte* from, const AxisSplit& split, float* amax,
                    std::uint64_t* fault) override;
  void LeafDigests(const std::byte* from, std::size_t bytes, Digest* leaves) override {
    const OnCudaDevice scope(stream_.device());
    CudaLeafDigests(from, bytes, leaves, stream_.handle());
  }
  void FindNonFinite(DType dtype, const std::byte* from, std::int64_t count, std::uint64_t* fault) override;

  Ticket Record() override;
  void Wait(Ticket ticket) override;

 private:
  struct Recorded {
    Ticket ticket;
    CudaEvent event;
  };

  void Check(cudaError_t error, const char* call) const { CheckCuda(error, call, stream_.device()); }
  void CopyPitched(const RegionView& view, std::byte* to) {
    const OnCudaDevice scope(stream_.device());
    CopyRows(view.base, view.stride, to, view.row_bytes, {0, view.rows, view.row_bytes, view.stride});
  }
  void CopyRows(const std::byte* from, std::size_t from_stride, std::byte* to, std::size_t to_stride,
                const Pitched& rows) {
    Check(cudaMemcpy2DAsync(to, to_stride, from, from_stride, rows.row_bytes, rows.rows, cudaMemcpyDeviceToDevice,
                            stream_.handle()),
          "cudaMemcpy2DAsync");
  }
  void CopyChecked(const MatrixView& rows, std::byte* to, std::uint64_t* fault);
  CudaTensorAmax AmaxOf(const CudaMatrix& piece, float given, CudaFaultWord* fault);
  void Forget();

  CudaStream stream_;
  CudaMemory memory_{stream_};
  PinnedMemory pinned_{stream_.device()};
  Buffer amax_;  // of one weight: the stream keeps its uses apart
  Ticket last_ = 0;
  std::deque<Recorded> recorded_;  // not known to be done
  std::vector<CudaEvent> spare_;
};

void CudaDeviceStream::Quantize(const Recipe& recipe, const MatrixView& rows, std::int64_t first_row,
                                const AmaxInput& amax, std::span<const KernelTensorView> outputs,
                                std::uint64_t* fault_word) {
  const OnCudaDevice scope(stream_.device());
  if (recipe.name() == "none") {
    LAYERCAST_CHECK(first_row == 0);
    return CopyChecked(rows, outputs[0].data, fault_word);
  }
  const CudaRecipe& kernel = CudaRecipeOf(recipe.name());
  auto* const fault = reinterpret_cast<CudaFaultWord*>(fault_word);
  const CudaMatrix piece{rows.dtype, rows.data, rows.rows, rows.cols, rows.row_stride, first_row};
  const CudaTensorAmax whole = kernel.of_whole_amax ? AmaxOf(piece, amax.tensor, fault) : CudaTensorAmax{};
  const float* const row_amax = amax.rows.empty() ? nullptr : amax.rows.data();
  kernel.quantize({piece, recipe.options(), whole, row_amax, outputs, fault, stream_.handle()});
}

// Types that no kernel of a recipe takes are looked through first; integers are all finite.
void CudaDeviceStream::CopyChecked(const MatrixView& rows, std::byte* to, std::uint64_t* fault) {
  const DType dtype = rows.dtype;
  if (dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF32) {
    return CudaCopy({dtype, rows.data, rows.rows, rows.cols, rows.row_stride, 0}, to,
                    reinterpret_cast<CudaFaultWord*>(fault), stream_.handle());
  }
  const std::int64_t row_bytes = rows.cols * BitsPerElement(dtype) / 8;
  LAYERCAST_CHECK(rows.row_stride == row_bytes);  // a parameter, whole
  FindNonFinite(dtype, rows.data, rows.rows * rows.cols, fault);
  if (row_bytes * rows.rows != 0) Copy(rows.data, to, static_cast<std::size_t>(row_bytes * rows.rows));
}

void CudaDeviceStream::FindNonFinite(DType dtype, const std::byte* from, std::int64_t count, std::uint64_t* fault) {
  const OnCudaDevice scope(stream_.device());
  const NonFinite wrong = NonFiniteOf(dtype);
  if (wrong.mask == 0) return;
  CudaFind(ElementBytes(dtype), from, count, wrong.mask, wrong.value, reinterpret_cast<CudaFaultWord*>(fault),
           stream_.handle());
}

void CudaDeviceStream::FindAxisAmax(DType dtype, const std::byte* from, const AxisSplit& split, float* amax,
                                    std::uint64_t* fault) {
  const OnCudaDevice scope(stream_.device());
  auto* const word = reinterpret_cast<CudaFaultWord*>(fault);
  const std::int64_t size = ElementBytes(dtype);
  if (split.last == 1) {
    return CudaRowAmax({dtype, from, split.outer, split.reduced, split.reduced * size, 0}, amax, word,
                       stream_.handle());
  }
  CudaColumnAmax({dtype, from, split.reduced, split.last, split.last * size, 0}, split.outer, amax, word,
                 stream_.handle());
}

CudaTensorAmax CudaDeviceStream::AmaxOf(const CudaMatrix& piece, float given, CudaFaultWord* fault) {
  if (given >= 0.0F) return {nullptr, given};
  if (!amax_) amax_ = Buffer(memory_, sizeof(float));
  Fill(amax_.data(), std::byte{0}, sizeof(float));
  auto* const amax = reinterpret_cast<float*>(amax_.data());
  CudaAmax(piece, amax, fault, stream_.handle());
  return {amax, 0.0F};
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
  std::prev(later)->event.Synchronize();  // those before it are reached then: one sleep, not one for each
  while (!recorded_.empty() && recorded_.front().ticket <= ticket) Forget();
}

void CudaDeviceStream::Forget() {
  spare_.push_back(std::move(recorded_.front().event));
  recorded_.pop_front();
}

}  // namespace

std::shared_ptr<DeviceStream> OpenCudaStream(const Device& device) {
  return std::make_shared<CudaDeviceStream>(device.index);
}

}  // namespace layercast
