// The quantize kernels, each as a ratio to the streaming limit measured in the same run: every sample of a kernel lies
// between two samples of the limit, and the figures are medians over those samples during which no other program ran in
// our place (their number is `quiet`). On a busy machine there may be none: `ratio_processor` is the ratio of processor
// time over all samples. Speeds are of source bytes.
#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bench/streaming_limit.h"
#include "engine_side/quant/recipe.h"

namespace layercast::bench {
namespace {

constexpr std::int64_t kRows = 4096;
constexpr std::int64_t kCols = 4096;
constexpr std::int64_t kLayers = 8;  // 256 MiB of bf16, 128 MiB of values: far more than the caches
constexpr std::int64_t kLayerBytes = kRows * kCols * 2;
constexpr int kSamples = 200;

struct Unmap {
  std::size_t bytes;
  void operator()(std::byte* memory) const { munmap(memory, bytes); }
};
using Memory = std::unique_ptr<std::byte, Unmap>;

Memory Allocate(std::int64_t bytes) {
  const auto size = static_cast<std::size_t>(bytes);
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  madvise(memory, size, MADV_HUGEPAGE);
  return Memory(static_cast<std::byte*>(memory), Unmap{size});
}

// Layers of normal bf16 weights, and the memory for what they become.
struct Layers {
  Memory source = Allocate(kLayers * kLayerBytes);
  Memory values = Allocate(kLayers * kLayerBytes);                            // as large as `none` needs
  std::vector<std::byte> scales = std::vector<std::byte>(kRows * kCols / 8);  // of one layer, under any recipe
  std::vector<float> row_amax = std::vector<float>(kRows);
  float amax = 0.0F;

  Layers() {
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0.0F, 0.02F);
    std::vector<std::uint16_t> some(1 << 20);
    for (std::uint16_t& value : some) {
      value = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(normal(random)) >> 16);
    }
    auto* to = reinterpret_cast<std::uint16_t*>(source.get());
    for (std::int64_t i = 0; i < kLayers * kRows * kCols; i += 1 << 20) std::copy(some.begin(), some.end(), to + i);
    std::fill_n(values.get(), kLayers * kLayerBytes, std::byte{1});
    WorkerPool pool(2);
    amax = Scan(layer(0), pool).amax;
    std::fill(row_amax.begin(), row_amax.end(), amax);
  }

  MatrixView layer(std::int64_t index) const {
    return {DType::kBF16, source.get() + index * kLayerBytes, kRows, kCols, kCols * 2};
  }
};

const Layers& TheLayers() {
  static const Layers layers;
  return layers;
}

// `pass` handles one layer, given its source and where its values go.
using LayerPass = std::function<void(const Layers&, std::int64_t layer, WorkerPool& pool)>;

LayerPass LimitPass(ReadPattern pattern) {
  return [pattern](const Layers& layers, std::int64_t layer, WorkerPool& pool) {
    constexpr std::int64_t kJob = std::int64_t{4} << 20;
    pool.For(kLayerBytes / kJob, [&](std::size_t job) {
      const std::int64_t offset = layer * kLayerBytes + static_cast<std::int64_t>(job) * kJob;
      auto* values = reinterpret_cast<std::uint8_t*>(layers.values.get());
      StreamTwoToOne(pattern, layers.source.get() + offset, kJob, values + offset / 2);
    });
  };
}

struct Sample {
  double seconds = 0.0;
  double processor_seconds = 0.0;  // of all threads
  bool quiet = false;              // no other program took a processor away meanwhile
};

double ProcessorSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Walks through the layers, so that none is in a cache when its turn comes.
class Sampler {
 public:
  explicit Sampler(WorkerPool& pool) : pool_(pool) {}

  Sample Take(const LayerPass& pass) {
    const Layers& layers = TheLayers();
    layer_ = (layer_ + 1) % kLayers;
    const double processor = ProcessorSeconds();
    const auto start = std::chrono::steady_clock::now();
    pass(layers, layer_, pool_);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const double busy = ProcessorSeconds() - processor;
    return {seconds, busy, busy > 0.85 * seconds * static_cast<double>(pool_.threads())};
  }

 private:
  WorkerPool& pool_;
  std::int64_t layer_ = 0;
};

double Median(std::vector<double> values) {
  if (values.empty()) return 0.0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The faster pattern of reading, by samples in turn.
LayerPass FastestLimit(Sampler& sampler) {
  constexpr int kTries = 30;
  const LayerPass patterns[] = {LimitPass(ReadPattern::kSequential), LimitPass(ReadPattern::kInterleaved)};
  std::vector<double> seconds[2];
  for (int i = 0; i < 2 * kTries; ++i) seconds[i % 2].push_back(sampler.Take(patterns[i % 2]).seconds);
  return Median(seconds[0]) < Median(seconds[1]) ? patterns[0] : patterns[1];
}

void Measure(benchmark::State& state, const LayerPass& pass) {
  TheLayers();
  WorkerPool pool(static_cast<std::size_t>(state.range(0)));
  Sampler sampler(pool);
  const LayerPass limit_pass = FastestLimit(sampler);
  std::vector<double> ratios;
  std::vector<double> processor_ratios;
  std::vector<double> kernels;
  std::vector<double> limits;
  Sample before = sampler.Take(limit_pass);
  for (auto _ : state) {
    const Sample kernel = sampler.Take(pass);
    const Sample after = sampler.Take(limit_pass);
    state.SetIterationTime(kernel.seconds);
    processor_ratios.push_back((before.processor_seconds + after.processor_seconds) / 2.0 / kernel.processor_seconds);
    if (before.quiet && kernel.quiet && after.quiet) {
      const double limit = (before.seconds + after.seconds) / 2.0;
      kernels.push_back(kernel.seconds);
      limits.push_back(limit);
      ratios.push_back(limit / kernel.seconds);
    }
    before = after;
  }
  const double gigabytes = static_cast<double>(kLayerBytes) / 1e9;
  state.counters["quiet"] = static_cast<double>(ratios.size());
  state.counters["ratio_processor"] = Median(processor_ratios);
  if (ratios.empty()) return;
  state.counters["kernel_GBps"] = gigabytes / Median(kernels);
  state.counters["limit_GBps"] = gigabytes / Median(limits);
  state.counters["ratio"] = Median(ratios);
}

LayerPass Quantize(const std::string& name, bool amax_given) {
  std::shared_ptr<const Recipe> recipe = MakeRecipe(name);  // shared with the copies that std::function makes
  return [recipe, amax_given](const Layers& layers, std::int64_t layer, WorkerPool& pool) {
    std::vector<KernelTensorView> outputs;
    auto* scales = const_cast<std::byte*>(layers.scales.data());
    for (const TensorSpec& spec : recipe->KernelTensors(DType::kBF16, kRows, kCols)) {
      if (outputs.empty()) {
        outputs.push_back({spec, layers.values.get() + layer * spec.num_bytes()});
      } else {
        outputs.push_back({spec, scales});
        scales += spec.num_bytes();
      }
    }
    AmaxInput amax;
    if (amax_given) amax = {layers.amax, layers.row_amax};
    recipe->Quantize(layers.layer(layer), 0, amax, outputs, pool);
  };
}

void ScanLayer(const Layers& layers, std::int64_t layer, WorkerPool& pool) {
  benchmark::DoNotOptimize(Scan(layers.layer(layer), pool));
}

void Register(const char* name, const LayerPass& pass) {
  benchmark::RegisterBenchmark(name, [pass](benchmark::State& state) { Measure(state, pass); })
      ->Arg(1)
      ->Arg(2)
      ->ArgName("threads")
      ->Iterations(kSamples)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

}  // namespace
}  // namespace layercast::bench

int main(int argc, char** argv) {
  using layercast::bench::Quantize;
  layercast::bench::Register("fp8_per_tensor/amax_given", Quantize("fp8_per_tensor", true));
  layercast::bench::Register("fp8_per_tensor/amax_unknown", Quantize("fp8_per_tensor", false));
  layercast::bench::Register("fp8_per_channel", Quantize("fp8_per_channel", false));
  layercast::bench::Register("fp8_per_channel/amax_given", Quantize("fp8_per_channel", true));
  layercast::bench::Register("fp8_per_block", Quantize("fp8_per_block", false));
  layercast::bench::Register("mxfp8", Quantize("mxfp8", false));
  layercast::bench::Register("nvfp4/amax_given", Quantize("nvfp4", true));
  layercast::bench::Register("int8_per_channel", Quantize("int8_per_channel", false));
  layercast::bench::Register("none", Quantize("none", false));
  layercast::bench::Register("scan", layercast::bench::ScanLayer);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
