// CUDA kernels on a device, against the CPU's byte for byte: what the tests of their bodies (cuda_bodies_test.cc)
// cannot show. Skipped by the probe where there is no device.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstring>
#include <optional>

#include "engine_side/quant/recipes/recipe_table.h"
#include "layercast/error.h"
#include "src/device/cuda/cuda_memory.h"
#include "src/device/cuda/cuda_stream.h"
#include "src/device/kernels/device_scan_kernels.h"
#include "tests/engine_side/quant/cuda/bodies/cuda_cases.h"
#include "tests/engine_side/quant/cuda/guarded.h"
#include "tests/src/device/cuda/a_device.h"

namespace layercast {
namespace {

// Puts the kernels of a recipe on the stream: `outputs` as KernelTensors lists them, the amax of the whole weight (its
// own if `own_amax` is given: a float to find it in), and of its rows if there is one.
struct KernelCall {
  CudaMatrix piece;
  CudaTensorAmax amax;
  float* own_amax = nullptr;
  const float* rows = nullptr;
  std::vector<std::byte*> outputs;
  CudaFaultWord* fault = nullptr;

  void Queue(const RecipeCase& c, CUstream_st* stream) const {
    if (own_amax != nullptr) {
      ExpectDone(cudaMemsetAsync(own_amax, 0, sizeof(float), stream));
      CudaAmax(piece, own_amax, fault, stream);
    }
    CudaQuantization q;
    q.piece = piece;
    q.power_of_two = c.options.power_of_two_scales;
    q.amax = own_amax != nullptr ? CudaTensorAmax{own_amax} : amax;
    q.row_amax = rows;
    q.values = reinterpret_cast<std::uint8_t*>(outputs[0]);
    if (outputs.size() > 1) q.scales = outputs[1];
    if (outputs.size() > 2) q.global_scale = reinterpret_cast<float*>(outputs[2]);
    q.fault = fault;
    q.stream = stream;
    if (c.name == kCopyCase.name) return CudaCopy(q);
    CudaKernelOf(c.name)(q);
  }
};

class OnGpu {
 public:
  // `outputs` hold what lay in them before; returns what was wrong. Sources begin `offset` bytes behind an aligned
  // address, outputs `output_offset`.
  std::optional<CudaFault> Quantize(const RecipeCase& c, const MatrixView& piece, std::int64_t first_row,
                                    const AmaxInput& amax, Quantized& outputs, std::size_t offset = 0,
                                    std::size_t output_offset = 0) {
    const auto bytes = static_cast<std::size_t>(
        piece.rows == 0 ? 0 : (piece.rows - 1) * piece.row_stride + piece.cols * BitsPerElement(piece.dtype) / 8);
    const Guarded source(stream_, memory_, {piece.data, bytes}, offset);
    const Guarded rows(stream_, memory_, std::as_bytes(amax.rows), 0);
    const Guarded own(stream_, memory_, std::vector<std::byte>(sizeof(float)), 0);
    const Guarded fault(stream_, memory_, std::vector<std::byte>(sizeof(CudaFaultWord), std::byte{0xff}), 0);
    std::vector<Guarded> there;
    KernelCall call;
    for (std::size_t t = 0; t < outputs.tensors.size(); ++t) {
      const std::size_t unit = outputs.specs[t].dtype == DType::kF32 ? 0 : output_offset;  // scales stay aligned
      call.outputs.push_back(there.emplace_back(stream_, memory_, outputs.tensors[t], unit).data());
    }
    call.piece = OfView(piece, first_row);
    call.piece.data = source.data();
    call.amax = {nullptr, amax.tensor};
    if (amax.tensor < 0.0F) call.own_amax = reinterpret_cast<float*>(own.data());
    if (!amax.rows.empty()) call.rows = reinterpret_cast<const float*>(rows.data());
    call.fault = reinterpret_cast<CudaFaultWord*>(fault.data());
    call.Queue(c, stream_.handle());
    for (std::size_t t = 0; t < outputs.tensors.size(); ++t) outputs.tensors[t] = there[t].Read();
    CudaFaultWord word = 0;
    std::memcpy(&word, fault.Read().data(), sizeof word);
    if (word == kNoCudaFault) return std::nullopt;
    return DecodeCudaFault(word);
  }

  void ExpectCpuBytes(const RecipeCase& c, const MatrixView& weight, const AmaxInput& amax, std::size_t offset = 0,
                      std::size_t output_offset = 0) {
    const auto recipe = MakeRecipe(c.name, c.options);
    const Quantized expected = QuantizeWhole(*recipe, weight, amax, pool_);
    Quantized got(*recipe, weight.dtype, weight.rows, weight.cols);
    EXPECT_FALSE(Quantize(c, weight, 0, amax, got, offset, output_offset).has_value()) << c.name;
    for (std::size_t t = 0; t < got.tensors.size(); ++t) {
      const auto [at, _] = std::mismatch(got.tensors[t].begin(), got.tensors[t].end(), expected.tensors[t].begin());
      ASSERT_TRUE(at == got.tensors[t].end())
          << c.name << ' ' << got.specs[t].name << ' ' << Name(weight.dtype) << ' ' << weight.rows << 'x' << weight.cols
          << ": byte " << at - got.tensors[t].begin();
    }
  }

  CudaStream& stream() { return stream_; }
  CudaMemory& memory() { return memory_; }
  WorkerPool& pool() { return pool_; }

 private:
  CudaStream stream_{0};
  CudaMemory memory_{stream_};
  WorkerPool pool_{2};
};

TEST(CudaKernels, EqualTheCpuOnEveryKindOfWeight) {
  LAYERCAST_NEEDS_CUDA();
  OnGpu gpu;
  for (const std::string& kind : WeightKinds()) {
    SCOPED_TRACE(kind);
    for (const DType dtype : kWeightTypes) {
      for (const RecipeCase& c : kRecipeCases) {
        gpu.ExpectCpuBytes(c, MakeWeight(kind, dtype, 17, c.Cols(521)).view(), {});
        gpu.ExpectCpuBytes(c, MakeWeight(kind, dtype, 37, 1056, 32).view(), {});
      }
    }
  }
}

TEST(CudaKernels, EqualTheCpuForOddSizesStridesAndAddresses) {
  LAYERCAST_NEEDS_CUDA();
  OnGpu gpu;
  for (const std::int64_t rows : {1, 127, 130}) {
    for (const std::int64_t cols : {1, 63, 130, 264}) {
      for (const std::int64_t gap : {0, 6, 32}) {
        for (const RecipeCase& c : kRecipeCases) {
          const Weight weight = MakeWeight("mixed", DType::kBF16, rows, c.Cols(cols), gap);
          gpu.ExpectCpuBytes(c, weight.view(), {});
          gpu.ExpectCpuBytes(c, weight.view(), {}, 2, 0);
          gpu.ExpectCpuBytes(c, weight.view(), {}, 0, 1);
        }
      }
    }
  }
  gpu.ExpectCpuBytes(kChannelCase, MakeWeight("mixed", DType::kF32, 9, 190, 6).view(), {}, 1);
}

TEST(CudaKernels, RowsOfEveryLengthEqualTheCpu) {
  LAYERCAST_NEEDS_CUDA();
  OnGpu gpu;
  for (const std::int64_t cols : kRowLengths) {
    for (const DType dtype : kWeightTypes) {
      const Weight weight = MakeWeight("mixed", dtype, cols < 4096 ? 67 : 9, cols);  // in both cases several blocks
      for (const RecipeCase& c : {kTensorCase, kChannelCase, kInt8Case, kPowerCase}) {
        gpu.ExpectCpuBytes(c, weight.view(), {});
      }
    }
  }
}

TEST(CudaKernels, EqualTheCpuOnEveryFiniteBf16ValueAndEveryMantissaOfTheScale) {
  LAYERCAST_NEEDS_CUDA();
  OnGpu gpu;
  for (const RecipeCase& c : kRecipeCases) gpu.ExpectCpuBytes(c, EveryBf16(0x7f80).view(), {});
  const Weight small = EveryBf16(0x4300);  // below 128
  for (std::uint32_t mantissa = 0; mantissa < 128; ++mantissa) {
    const auto amax = static_cast<float>(DecodeElement(DType::kBF16, 0x4300 + mantissa));
    const std::vector<float> rows(256, amax);
    for (const RecipeCase& c : {kTensorCase, kChannelCase, kInt8Case, kNvfp4Case}) {
      gpu.ExpectCpuBytes(c, small.view(), {.tensor = amax, .rows = rows});
    }
  }
}

TEST(CudaKernels, PieceByPieceGivesTheBytesOfTheWhole) {
  LAYERCAST_NEEDS_CUDA();
  OnGpu gpu;
  const std::int64_t rows = 700;
  const Weight weight = MakeWeight("mixed", DType::kBF16, rows, 224, 32);
  const AmaxInput amax{.tensor = Scan(weight.view(), gpu.pool()).amax, .rows = {}};
  for (const RecipeCase& c : kRecipeCases) {
    const auto recipe = MakeRecipe(c.name, c.options);
    Quantized pieces(*recipe, DType::kBF16, rows, 224);
    for (const std::int64_t first : {512, 0, 256}) {
      const std::int64_t count = std::min<std::int64_t>(256, rows - first);
      EXPECT_FALSE(gpu.Quantize(c, weight.Part(first, count, 0, 224), first, amax, pieces).has_value());
    }
    EXPECT_EQ(pieces, QuantizeWhole(*recipe, weight.view(), amax, gpu.pool())) << c.name;
  }
}

TEST(CudaKernels, TheFirstWrongValueIsReportedWithItsIndexInTheWeight) {
  LAYERCAST_NEEDS_CUDA();
  using Kind = CudaFault::Kind;
  OnGpu gpu;
  const std::vector<float> rows(428, 1e4F);
  for (const RecipeCase& c : kRecipeCases) {
    const auto recipe = MakeRecipe(c.name, c.options);
    Weight weight = MakeWeight("random", DType::kBF16, 300, 1056);
    weight.SetBits(299, 1055, 0x7fc0);
    weight.SetBits(131, 7, 0xff80);
    weight.SetBits(12, 1, BitsOf(DType::kBF16, 3e4));
    Quantized outputs(*recipe, DType::kBF16, 428, 1056);
    const auto fault = gpu.Quantize(c, weight.view(), 128, {.tensor = 1e4F, .rows = rows}, outputs);
    ASSERT_TRUE(fault.has_value()) << c.name;
    EXPECT_EQ(fault->kind, Kind::kMinusInfinity) << c.name;
    EXPECT_EQ(fault->index, (128 + 131) * 1056 + 7) << c.name;
  }
}

TEST(CudaKernels, RowsHaveTheAmaxOfTheScan) {
  LAYERCAST_NEEDS_CUDA();
  OnGpu gpu;
  for (const std::int64_t cols : {1, 40, 1048, 9000}) {
    const Weight weight = MakeWeight("mixed", DType::kF16, 70, cols, 16);
    const Guarded source(gpu.stream(), gpu.memory(), weight.bytes, 0);
    const Guarded found(gpu.stream(), gpu.memory(), std::vector<std::byte>(70 * sizeof(float)), 0);
    CudaMatrix matrix = OfView(weight.view(), 0);
    matrix.data = source.data();
    CudaRowAmax(matrix, reinterpret_cast<float*>(found.data()), nullptr, gpu.stream().handle());  // nothing is wrong
    std::vector<float> expected(70);
    ScanRows(weight.view(), gpu.pool(), expected);
    const auto bytes = std::as_bytes(std::span(expected));
    EXPECT_EQ(found.Read(), std::vector<std::byte>(bytes.begin(), bytes.end()));
  }
}

// More than 2^31 elements, all but the last rows zero: indices and addresses are 64 bits wide.
TEST(CudaKernels, AWeightOfMoreThanTwoToThe31ElementsIsQuantizedToItsEnd) {
  LAYERCAST_NEEDS_CUDA();
  constexpr std::int64_t kCols = 16384;
  constexpr std::int64_t kRows = (std::int64_t{1} << 31) / kCols + 128;
  constexpr std::int64_t kLast = 128;
  constexpr std::size_t kElements = static_cast<std::size_t>(kRows * kCols);
  OnGpu gpu;
  std::size_t free = 0;
  std::size_t total = 0;
  ExpectDone(cudaMemGetInfo(&free, &total));
  if (free < 5 * kElements) GTEST_SKIP() << "too little device memory: " << free << " bytes";
  const Buffer source(gpu.memory(), 2 * kElements);
  const Buffer values(gpu.memory(), 2 * kElements);
  const Buffer scales(gpu.memory(), kElements / 16);
  const Buffer small(gpu.memory(), 64);  // a fault's word, an amax, a scale
  CUstream_st* stream = gpu.stream().handle();
  const Weight last = MakeWeight("random", DType::kBF16, kLast, kCols);
  ExpectDone(cudaMemsetAsync(source.data(), 0, source.size(), stream));
  ExpectDone(cudaMemcpyAsync(source.data() + 2 * kElements - last.bytes.size(), last.bytes.data(), last.bytes.size(),
                             cudaMemcpyHostToDevice, stream));
  for (const RecipeCase& c : kRecipeCases) {
    KernelCall call;
    call.piece = {DType::kBF16, source.data(), kRows, kCols, kCols * 2, 0};
    call.fault = reinterpret_cast<CudaFaultWord*>(small.data());
    call.own_amax = reinterpret_cast<float*>(small.data() + 16);
    call.outputs = {values.data(), scales.data(), small.data() + 32};
    ExpectDone(cudaMemsetAsync(small.data(), 0xff, small.size(), stream));
    ExpectDone(cudaMemsetAsync(values.data(), 0xa5, values.size(), stream));
    call.Queue(c, stream);

    const auto recipe = MakeRecipe(c.name, c.options);
    const Quantized expected = QuantizeWhole(*recipe, last.view(), {}, gpu.pool());
    std::vector<std::byte> got(expected.tensors[0].size());
    const std::size_t whole = got.size() / static_cast<std::size_t>(kLast) * static_cast<std::size_t>(kRows);
    ExpectDone(
        cudaMemcpyAsync(got.data(), values.data() + whole - got.size(), got.size(), cudaMemcpyDeviceToHost, stream));
    CudaFaultWord fault = 0;
    ExpectDone(cudaMemcpyAsync(&fault, small.data(), sizeof fault, cudaMemcpyDeviceToHost, stream));
    gpu.stream().Synchronize();
    EXPECT_EQ(fault, kNoCudaFault) << c.name;
    EXPECT_TRUE(got == expected.tensors[0]) << c.name;
  }
}

// A captured graph may neither wait nor allocate: what it replays is kernels alone, on the weights that are there then.
TEST(CudaKernels, ACapturedGraphQuantizesWhatItsSourceHoldsWhenItRuns) {
  LAYERCAST_NEEDS_CUDA();
  OnGpu gpu;
  const Weight first = MakeWeight("random", DType::kBF16, 256, 1024);
  const Weight second = MakeWeight("mixed", DType::kBF16, 256, 1024);
  const Guarded source(gpu.stream(), gpu.memory(), first.bytes, 0);
  for (const RecipeCase& c : kRecipeCases) {
    const auto recipe = MakeRecipe(c.name, c.options);
    Quantized outputs(*recipe, DType::kBF16, 256, 1024);
    std::vector<Guarded> there;
    const Guarded small(gpu.stream(), gpu.memory(), std::vector<std::byte>(16, std::byte{0xff}), 0);
    KernelCall call;
    for (const auto& tensor : outputs.tensors) {
      call.outputs.push_back(there.emplace_back(gpu.stream(), gpu.memory(), tensor, 0).data());
    }
    call.piece = OfView(first.view(), 0);
    call.piece.data = source.data();
    call.fault = reinterpret_cast<CudaFaultWord*>(small.data());
    call.own_amax = reinterpret_cast<float*>(small.data() + 8);
    CUstream_st* stream = gpu.stream().handle();
    call.Queue(c, stream);  // what is loaded at a kernel's first start is loaded
    gpu.stream().Synchronize();
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t ready = nullptr;
    ExpectDone(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    call.Queue(c, stream);
    ExpectDone(cudaStreamEndCapture(stream, &graph));
    ExpectDone(cudaGraphInstantiate(&ready, graph, 0));
    for (const Weight* weight : {&first, &second}) {
      ExpectDone(
          cudaMemcpyAsync(source.data(), weight->bytes.data(), weight->bytes.size(), cudaMemcpyHostToDevice, stream));
      ExpectDone(cudaGraphLaunch(ready, stream));
      for (std::size_t t = 0; t < there.size(); ++t) outputs.tensors[t] = there[t].Read();
      EXPECT_EQ(outputs, QuantizeWhole(*recipe, weight->view(), {}, gpu.pool())) << c.name;
    }
    ExpectDone(cudaGraphExecDestroy(ready));
    ExpectDone(cudaGraphDestroy(graph));
  }
}

// Needs no device.
TEST(CudaRecipes, AreAllThatQuantize) {
  for (const std::string& name : KnownRecipes()) {
    if (name != "none") {
      EXPECT_NO_THROW(CudaKernelOf(name)) << name;
    }
  }
  EXPECT_THROW(CudaKernelOf("none"), Error);
}

}  // namespace
}  // namespace layercast
