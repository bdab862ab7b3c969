// ReloadStream by CUDA: what it does beyond CudaDeviceStream, by kernels or, if rows are long enough, by
// two-dimensional copies.
#include <optional>
#include <vector>

#include "engine_side/quant/cuda/bodies/cuda_codes.h"
#include "engine_side/quant/cuda_kernels.h"
#include "engine_side/reload/device/move_kernels.h"
#include "engine_side/reload/device/reload_stream.h"
#include "src/base/check.h"
#include "src/device/cuda/call.h"
#include "src/device/cuda/row_copy.h"
#include "src/device/cuda_device_stream.h"
#include "src/device/kernels/device_scan_kernels.h"
#include "src/tensor/kernel_dtypes.h"

namespace layercast {
namespace {

int ElementBytes(DType dtype) { return BitsPerElement(dtype) / 8; }

std::uint8_t* Codes(std::span<std::byte> bytes) { return reinterpret_cast<std::uint8_t*>(bytes.data()); }

// Elements [first, first + count) of a walk over the tensor at `tensor` as rows for a two-dimensional copy. Empty if a
// kernel must copy them, or does it faster, as it does if rows are short.
std::optional<RegionView> PitchedOf(DType dtype, const std::byte* tensor, const Walk& walk, std::int64_t first,
                                    std::int64_t count) {
  constexpr std::size_t kFewestBytes = 512;  // bytes of a row: what a warp reads at once, by words of 16 bytes
  const std::optional<Walk::Rows> rows = walk.RowsOf(first, count);
  if (!rows) return std::nullopt;
  const std::int64_t size = ElementBytes(dtype);
  const RegionView view{tensor + rows->at * size, static_cast<std::size_t>(rows->cols * size),
                        static_cast<std::size_t>(rows->rows), static_cast<std::size_t>(rows->stride * size)};
  const bool suits =
      HowToCopyRows(view.row_bytes, view.rows, view.stride) == RowCopy::kPitched && view.row_bytes >= kFewestBytes;
  return suits ? std::optional(view) : std::nullopt;
}

class CudaReloadStream final : public CudaDeviceStream, public ReloadStream {
 public:
  explicit CudaReloadStream(int device) : CudaDeviceStream(device) {
    const OnCudaDevice scope(device);
    LoadCudaKernels();
    LoadMoveKernels();
  }

  void Scatter(DType from, const std::byte* packed, DType to_dtype, std::byte* to, const Walk& walk, std::int64_t first,
               std::int64_t count, std::uint64_t* fault) override {
    const OnCudaDevice scope(stream().device());
    const auto rows = from == to_dtype ? PitchedOf(from, to, walk, first, count) : std::nullopt;
    if (rows) {
      std::byte* const at = to + (rows->base - to);
      CopyRows(packed, rows->row_bytes, at, rows->stride, rows->row_bytes, rows->rows);
    } else if (from == to_dtype) {
      CudaScatter(ElementBytes(from), packed, to, walk, first, count, stream().handle());
    } else {
      CudaScatterCast(from, packed, to_dtype, to, walk, first, count, reinterpret_cast<CudaFaultWord*>(fault),
                      stream().handle());
    }
  }
  void Gather(DType dtype, const std::byte* from, const Walk& walk, std::int64_t first, std::int64_t count,
              std::byte* packed) override {
    const OnCudaDevice scope(stream().device());
    if (const auto rows = PitchedOf(dtype, from, walk, first, count)) return Pack(*rows, packed);
    CudaGather(ElementBytes(dtype), from, walk, first, count, packed, stream().handle());
  }
  void Zero(DType dtype, std::byte* to, const Walk& walk) override {
    const OnCudaDevice scope(stream().device());
    CudaZero(ElementBytes(dtype), to, walk, walk.num_elements(), stream().handle());
  }
  void Quantize(const Recipe& recipe, const MatrixView& rows, std::int64_t first_row, const AmaxInput& amax,
                std::span<const KernelTensorView> outputs, std::uint64_t* fault) override;
  void Rescale(std::span<std::byte> codes, float from, float to) override {
    const OnCudaDevice scope(stream().device());
    CudaRescale(Codes(codes), std::ssize(codes), from, to, stream().handle());
  }
  void RescaleNvfp4(std::span<std::byte> codes, std::span<std::byte> scales, float from, float to) override {
    const OnCudaDevice scope(stream().device());
    CudaRescaleNvfp4(Codes(codes), Codes(scales), std::ssize(scales), from, to, stream().handle());
  }
  void Dequantize(const Recipe& recipe, std::span<const KernelTensorView> tensors, DType dtype,
                  std::byte* values) override {
    const OnCudaDevice scope(stream().device());
    CudaDequantize(CodesOf(recipe.format(), tensors), dtype, values, stream().handle());
  }
  void NegateExponential(DType dtype, const std::byte* from, std::int64_t count, float* to) override {
    const OnCudaDevice scope(stream().device());
    CudaNegateExponential(dtype, from, count, to, stream().handle());
  }

 private:
  void CopyChecked(const CudaMatrix& piece, std::byte* to, std::uint64_t* fault);
  CudaTensorAmax AmaxOf(const CudaMatrix& piece, float given, CudaFaultWord* fault);

  Buffer amax_;  // of one weight at a time: the stream keeps its uses apart
};

void CudaReloadStream::Quantize(const Recipe& recipe, const MatrixView& rows, std::int64_t first_row,
                                const AmaxInput& amax, std::span<const KernelTensorView> outputs,
                                std::uint64_t* fault_word) {
  const OnCudaDevice scope(stream().device());
  const CudaMatrix piece{rows.dtype, rows.data, rows.rows, rows.cols, rows.row_stride, first_row};
  if (recipe.name() == "none") return CopyChecked(piece, outputs[0].data, fault_word);
  CudaKernel& kernel = CudaKernelOf(recipe.name());
  auto* const fault = reinterpret_cast<CudaFaultWord*>(fault_word);
  // The magnitude of a piece is not the whole weight's.
  const bool of_whole_amax = recipe.Needs(ShardAxis::kNone) == AmaxNeed::kTensor;
  LAYERCAST_CHECK(!of_whole_amax || amax.tensor >= 0.0F || rows.rows == outputs[0].rows);
  CudaQuantization quantization;
  quantization.piece = piece;
  quantization.power_of_two = recipe.options().power_of_two_scales;
  if (of_whole_amax) quantization.amax = AmaxOf(piece, amax.tensor, fault);
  if (!amax.rows.empty()) quantization.row_amax = amax.rows.data();
  quantization.values = reinterpret_cast<std::uint8_t*>(outputs[0].data);
  quantization.scales = outputs[1].data;
  if (outputs.size() > 2) quantization.global_scale = reinterpret_cast<float*>(outputs[2].data);
  quantization.fault = fault;
  quantization.stream = stream().handle();
  kernel(quantization);
}

// Copies rows of the tensor at `to`, and looks for NaN and infinity in them. Types that the kernel of `none` does not
// take come as whole parameters, and are checked by a kernel of their own first; integers are all finite.
void CudaReloadStream::CopyChecked(const CudaMatrix& piece, std::byte* to, std::uint64_t* fault) {
  const DType dtype = piece.dtype;
  if (IsKernelDType(dtype)) {
    CudaQuantization copy;
    copy.piece = piece;
    copy.values = reinterpret_cast<std::uint8_t*>(to);
    copy.fault = reinterpret_cast<CudaFaultWord*>(fault);
    copy.stream = stream().handle();
    return CudaCopy(copy);
  }
  const std::int64_t row_bytes = piece.cols * BitsPerElement(dtype) / 8;
  LAYERCAST_CHECK(piece.first_row == 0 && piece.row_stride == row_bytes);
  const auto* const from = static_cast<const std::byte*>(piece.data);
  FindNonFinite(dtype, from, piece.rows * piece.cols, fault);
  if (row_bytes * piece.rows != 0) Copy(from, to, static_cast<std::size_t>(row_bytes * piece.rows));
}

CudaTensorAmax CudaReloadStream::AmaxOf(const CudaMatrix& piece, float given, CudaFaultWord* fault) {
  if (given >= 0.0F) return {nullptr, given};
  if (!amax_) amax_ = Buffer(memory(), sizeof(float));
  Fill(amax_.data(), std::byte{0}, sizeof(float));
  auto* const amax = reinterpret_cast<float*>(amax_.data());
  CudaAmax(piece, amax, fault, stream().handle());
  return {amax, 0.0F};
}

}  // namespace

std::shared_ptr<ReloadStream> OpenCudaReloadStream(const Device& device) {
  return std::make_shared<CudaReloadStream>(device.index);
}

}  // namespace layercast
