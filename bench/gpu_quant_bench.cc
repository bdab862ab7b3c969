// The CUDA kernels, each as a ratio to the device's own copy from memory to memory, measured in the same run: every
// sample of a kernel lies between two samples of the copy, and the figures are medians. Bytes are those read plus those
// written. How threads share a row depends on its length, so weights of several shapes are measured. Prints a table and
// needs a device; docs/gpu.md says how to run it.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "bench/samples.h"
#include "engine_side/quant/cuda_kernels.h"
#include "layercast/dtype.h"
#include "layercast/error.h"
#include "src/device/cuda/call.h"
#include "src/device/cuda/cuda_memory.h"
#include "src/device/cuda/cuda_probe.h"
#include "src/device/cuda/cuda_stream.h"
#include "src/device/kernels/device_scan_kernels.h"

namespace layercast::bench {
namespace {

struct Shape {
  std::int64_t rows;
  std::int64_t cols;
  constexpr std::int64_t elements() const { return rows * cols; }
};

// Rows that one block of threads holds, with a power of two of threads and with another number, and rows that are too
// long for one block. All weights are about as large.
constexpr Shape kShapes[] = {{8192, 8192}, {13056, 5120}, {3456, 18944}, {2304, 28672}};
constexpr std::int64_t kElements = std::ranges::max(kShapes, {}, &Shape::elements).elements();
constexpr int kLayers = 8;  // 1 GiB of bf16: far more than the caches, so no layer is cached when its turn comes
constexpr int kWarmUp = 10;
constexpr int kSamples = 60;

void Check(cudaError_t status, const char* call) { CheckCuda(status, call, 0); }

// Normally distributed weights on the device, of one shape, and memory for the results.
class Layers {
 public:
  Layers(const CudaStream& stream, const Shape& shape)
      : shape_(shape),
        memory_(stream),
        source_(memory_, kLayers * kElements * 2),
        values_(memory_, kLayers * kElements * 2),
        scales_(memory_, kElements / 8),
        small_(memory_, 64) {
    const std::vector<std::uint16_t> some = NormalBf16(std::size_t{1} << 20);
    const std::size_t bytes = some.size() * 2;
    for (std::size_t at = 0; at < source_.size(); at += bytes) {
      Check(cudaMemcpyAsync(source_.data() + at, some.data(), bytes, cudaMemcpyHostToDevice, stream.handle()), "copy");
    }
    Check(cudaMemsetAsync(small_.data(), 0xff, small_.size(), stream.handle()), "memset");
    Check(cudaMemsetAsync(amax(), 0, sizeof(float), stream.handle()), "memset");
    CudaAmax(layer(0), amax(), fault(), stream.handle());
    stream.Synchronize();
  }

  CudaMatrix layer(int index) const {
    return {DType::kBF16, source_.data() + index * kElements * 2, shape_.rows, shape_.cols, shape_.cols * 2, 0};
  }
  const Shape& shape() const { return shape_; }
  std::uint8_t* values(int index) const {
    return reinterpret_cast<std::uint8_t*>(values_.data() + index * kElements * 2);
  }
  std::uint8_t* scales() const { return reinterpret_cast<std::uint8_t*>(scales_.data()); }
  float* float_scales() const { return reinterpret_cast<float*>(scales_.data()); }
  CudaFaultWord* fault() const { return reinterpret_cast<CudaFaultWord*>(small_.data()); }
  float* amax() const { return reinterpret_cast<float*>(small_.data() + 16); }
  float* whole_scale() const { return reinterpret_cast<float*>(small_.data() + 32); }

 private:
  const Shape shape_;
  CudaMemory memory_;
  Buffer source_;
  Buffer values_;
  Buffer scales_;
  Buffer small_;
};

// Queues the work for one layer.
using LayerPass = std::function<void(const Layers&, int layer, CUstream_st* stream)>;

struct TimedPass {
  const char* name;
  double bytes;  // read and written for one layer
  LayerPass pass;
};

void CopyLayer(const Layers& layers, int layer, CUstream_st* stream) {
  const auto bytes = static_cast<std::size_t>(layers.shape().elements() * 2);
  Check(cudaMemcpyAsync(layers.values(layer), layers.layer(layer).data, bytes, cudaMemcpyDeviceToDevice, stream),
        "copy");
}

LayerPass Quantizes(CudaKernel& kernel) {
  return [&kernel](const Layers& layers, int layer, CUstream_st* stream) {
    CudaQuantization q;
    q.piece = layers.layer(layer);
    q.amax = {layers.amax()};
    q.values = layers.values(layer);
    q.scales = layers.scales();
    q.global_scale = layers.whole_scale();
    q.fault = layers.fault();
    q.stream = stream;
    kernel(q);
  };
}

std::vector<TimedPass> Passes(const Shape& shape) {
  const double n = static_cast<double>(shape.elements());
  return {
      {"none", 4 * n, Quantizes(CudaCopy)},
      {"fp8_per_tensor, amax known", 3 * n, Quantizes(CudaKernelOf("fp8_per_tensor"))},
      {"fp8_per_channel", 3 * n, Quantizes(CudaKernelOf("fp8_per_channel"))},
      {"fp8_per_block", 3 * n, Quantizes(CudaKernelOf("fp8_per_block"))},
      {"mxfp8", 3.03125 * n, Quantizes(CudaKernelOf("mxfp8"))},
      {"mxfp4", 2.53125 * n, Quantizes(CudaKernelOf("mxfp4"))},
      {"nvfp4, amax known", 2.5625 * n, Quantizes(CudaKernelOf("nvfp4"))},
      {"int8_per_channel", 3 * n, Quantizes(CudaKernelOf("int8_per_channel"))},
      {"amax", 2 * n, [](const Layers& l, int i, auto s) { CudaAmax(l.layer(i), l.amax(), l.fault(), s); }},
      {"amax of rows", 2 * n,
       [](const Layers& l, int i, auto s) { CudaRowAmax(l.layer(i), l.float_scales(), l.fault(), s); }},
  };
}

// Samples the seconds for one layer. All layers are done between two events, so the start of a kernel is not waited
// for.
class Sampler {
 public:
  Sampler(const CudaStream& stream, const Layers& layers) : stream_(stream), layers_(layers) {
    Check(cudaEventCreate(&begin_), "cudaEventCreate");
    Check(cudaEventCreate(&end_), "cudaEventCreate");
  }
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;
  ~Sampler() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }

  double Seconds(const LayerPass& pass) {
    Check(cudaEventRecord(begin_, stream_.handle()), "cudaEventRecord");
    for (int layer = 0; layer < kLayers; ++layer) pass(layers_, layer, stream_.handle());
    Check(cudaEventRecord(end_, stream_.handle()), "cudaEventRecord");
    Check(cudaEventSynchronize(end_), "cudaEventSynchronize");
    float milliseconds = 0.0F;
    Check(cudaEventElapsedTime(&milliseconds, begin_, end_), "cudaEventElapsedTime");
    return static_cast<double>(milliseconds) * 1e-3 / kLayers;
  }

 private:
  const CudaStream& stream_;
  const Layers& layers_;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

void Measure(Sampler& sampler, const Shape& shape, const TimedPass& timed) {
  const double copy_bytes = 4.0 * static_cast<double>(shape.elements());
  for (int i = 0; i < kWarmUp; ++i) sampler.Seconds(timed.pass);
  std::vector<double> rates;
  std::vector<double> copies;
  std::vector<double> ratios;
  double before = copy_bytes / sampler.Seconds(CopyLayer);
  for (int i = 0; i < kSamples; ++i) {
    const double rate = timed.bytes / sampler.Seconds(timed.pass);
    const double after = copy_bytes / sampler.Seconds(CopyLayer);
    rates.push_back(rate);
    copies.push_back(after);
    ratios.push_back(rate / ((before + after) / 2.0));
    before = after;
  }
  const std::string of = "[" + std::to_string(shape.rows) + ", " + std::to_string(shape.cols) + "]";
  std::printf("%-28s %-14s %8.0f %8.0f %8.2f\n", timed.name, of.c_str(), Median(rates) * 1e-9, Median(copies) * 1e-9,
              Median(ratios));
}

void Run() {
  cudaDeviceProp properties{};
  Check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  std::printf("%s; bf16 weights; GB/s read and written, medians of %d\n\n", properties.name, kSamples);
  std::printf("%-28s %-14s %8s %8s %8s\n", "", "weight", "kernel", "copy", "ratio");
  const CudaStream stream(0);
  for (const Shape& shape : kShapes) {
    const Layers layers(stream, shape);
    Sampler sampler(stream, layers);
    for (int i = 0; i < kWarmUp; ++i) sampler.Seconds(CopyLayer);
    for (const TimedPass& timed : Passes(shape)) Measure(sampler, shape, timed);
  }
}

}  // namespace
}  // namespace layercast::bench

int main() {
  const layercast::CudaProbe probe = layercast::ProbeCuda();
  if (!probe) {
    std::fprintf(stderr, "gpu_quant_bench: no CUDA: %s\n", probe.why_none.c_str());
    return 1;
  }
  try {
    layercast::bench::Run();
  } catch (const layercast::Error& error) {
    std::fprintf(stderr, "gpu_quant_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
