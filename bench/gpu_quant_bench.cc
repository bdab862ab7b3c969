// The CUDA kernels, each as a ratio to the device's own copy from memory to memory, measured in the same run: every
// sample of a kernel lies between two samples of the copy, and the figures are medians. Bytes are those read plus those
// written. Prints a table and needs a device; docs/gpu.md says how to run it.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <vector>

#include "bench/samples.h"
#include "engine_side/quant/cuda_kernels.h"
#include "layercast/dtype.h"
#include "layercast/error.h"
#include "src/cuda/call.h"
#include "src/cuda/memory.h"
#include "src/cuda/probe.h"
#include "src/cuda/stream.h"

namespace layercast::bench {
namespace {

constexpr std::int64_t kRows = 8192;
constexpr std::int64_t kCols = 8192;
constexpr std::int64_t kElements = kRows * kCols;
constexpr int kLayers = 8;  // 1 GiB of bf16: far more than the caches, so none is in one when its turn comes
constexpr int kWarmUp = 10;
constexpr int kSamples = 60;

void Check(cudaError_t status, const char* call) { CheckCuda(status, call, 0); }

// Normal weights on the device, and memory for what they become.
class Layers {
 public:
  explicit Layers(const CudaStream& stream)
      : memory_(stream),
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
    return {DType::kBF16, source_.data() + index * kElements * 2, kRows, kCols, kCols * 2, 0};
  }
  std::uint8_t* values(int index) const {
    return reinterpret_cast<std::uint8_t*>(values_.data() + index * kElements * 2);
  }
  std::uint8_t* scales() const { return reinterpret_cast<std::uint8_t*>(scales_.data()); }
  float* float_scales() const { return reinterpret_cast<float*>(scales_.data()); }
  CudaFaultWord* fault() const { return reinterpret_cast<CudaFaultWord*>(small_.data()); }
  float* amax() const { return reinterpret_cast<float*>(small_.data() + 16); }
  float* whole_scale() const { return reinterpret_cast<float*>(small_.data() + 32); }

 private:
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
  Check(
      cudaMemcpyAsync(layers.values(layer), layers.layer(layer).data, kElements * 2, cudaMemcpyDeviceToDevice, stream),
      "copy");
}

std::vector<TimedPass> Passes() {
  const double n = static_cast<double>(kElements);
  return {
      {"none", 4 * n, [](const Layers& l, int i, auto s) { CudaCopy(l.layer(i), l.values(i), l.fault(), s); }},
      {"fp8_per_tensor, amax known", 3 * n,
       [](const Layers& l, int i, auto s) {
         CudaFp8PerTensor(l.layer(i), {l.amax()}, l.values(i), l.whole_scale(), l.fault(), s);
       }},
      {"fp8_per_channel", 3 * n,
       [](const Layers& l, int i, auto s) {
         CudaFp8PerChannel(l.layer(i), nullptr, l.values(i), l.float_scales(), l.fault(), s);
       }},
      {"fp8_per_block", 3 * n,
       [](const Layers& l, int i, auto s) {
         CudaFp8PerBlock(l.layer(i), false, l.values(i), l.float_scales(), l.fault(), s);
       }},
      {"mxfp8", 3.03125 * n,
       [](const Layers& l, int i, auto s) { CudaMxfp8(l.layer(i), l.values(i), l.scales(), l.fault(), s); }},
      {"mxfp4", 2.53125 * n,
       [](const Layers& l, int i, auto s) { CudaMxfp4(l.layer(i), l.values(i), l.scales(), l.fault(), s); }},
      {"nvfp4, amax known", 2.5625 * n,
       [](const Layers& l, int i, auto s) {
         CudaNvfp4(l.layer(i), {l.amax()}, l.values(i), l.scales(), l.whole_scale(), l.fault(), s);
       }},
      {"int8_per_channel", 3 * n,
       [](const Layers& l, int i, auto s) {
         CudaInt8PerChannel(l.layer(i), nullptr, l.values(i), l.float_scales(), l.fault(), s);
       }},
      {"amax", 2 * n, [](const Layers& l, int i, auto s) { CudaAmax(l.layer(i), l.amax(), l.fault(), s); }},
      {"amax of rows", 2 * n,
       [](const Layers& l, int i, auto s) { CudaRowAmax(l.layer(i), l.float_scales(), l.fault(), s); }},
  };
}

// Seconds for one layer. All are done between two events, so that no start of a kernel is waited for.
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

void Measure(Sampler& sampler, const TimedPass& timed) {
  constexpr double kCopyBytes = 4.0 * static_cast<double>(kElements);
  for (int i = 0; i < kWarmUp; ++i) sampler.Seconds(timed.pass);
  std::vector<double> rates;
  std::vector<double> copies;
  std::vector<double> ratios;
  double before = kCopyBytes / sampler.Seconds(CopyLayer);
  for (int i = 0; i < kSamples; ++i) {
    const double rate = timed.bytes / sampler.Seconds(timed.pass);
    const double after = kCopyBytes / sampler.Seconds(CopyLayer);
    rates.push_back(rate);
    copies.push_back(after);
    ratios.push_back(rate / ((before + after) / 2.0));
    before = after;
  }
  std::printf("%-28s %8.0f %8.0f %8.2f\n", timed.name, Median(rates) * 1e-9, Median(copies) * 1e-9, Median(ratios));
}

void Run() {
  cudaDeviceProp properties{};
  Check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  std::printf("%s; bf16 weights [%lld, %lld]; GB/s read and written, medians of %d\n\n", properties.name,
              static_cast<long long>(kRows), static_cast<long long>(kCols), kSamples);
  std::printf("%-28s %8s %8s %8s\n", "", "kernel", "copy", "ratio");
  const CudaStream stream(0);
  const Layers layers(stream);
  Sampler sampler(stream, layers);
  for (int i = 0; i < kWarmUp; ++i) sampler.Seconds(CopyLayer);
  for (const TimedPass& timed : Passes()) Measure(sampler, timed);
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
