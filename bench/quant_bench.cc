// The quantize kernels, each as a ratio to the streaming limit of its own traffic measured in the same run: every
// sample of a kernel lies between two samples of the limit, and the figures are medians over those samples during which
// no other program took a processor away (their number is `quiet`). On a busy machine there may be none: then look at
// `ratio_processor`, the ratio of processor time over all samples. Speeds are of source bytes. A kernel's speed from
// the second-level cache (`cached_GBps`) tells what bounds it: if that is not above the limit, arithmetic does.
// --target=AVX2 measures kernels and limits of that instruction set.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/layers.h"
#include "bench/samples.h"
#include "bench/streaming_limit.h"
#include "engine_side/quant/recipe.h"
#include "engine_side/quant/recipes/recipe_table.h"

namespace layercast::bench {
namespace {

constexpr int kSamples = 200;

// The layers that a pass is measured on. Value.
struct Ground {
  LayersShape in_memory{.rows = 4096, .cols = 4096, .count = 8};  // 256 MiB, as much again of values: no cache holds it
  LayersShape in_cache{.rows = 64, .cols = 4096, .count = 1};     // 512 KiB
};

// For passes over blocks of 128 rows. Such a pass encodes one tile while it scans the next, so a single tile would not
// show that. There are four tiles, and not narrower ones, in which every row costs more.
Ground ByBlocks() { return {.in_cache = {.rows = 512, .cols = 512, .count = 1}}; }

// In each tile of the small blocks' pass (2048 elements), one block is all zeros.
Ground WithZeroBlocks() {
  Ground ground;
  ground.in_memory.zeros_every = ground.in_cache.zeros_every = 2048;
  return ground;
}

// `pass` handles one layer.
using LayerPass = std::function<void(const Layers&, std::int64_t layer, WorkerPool& pool)>;

LayerPass LimitPass(ReadPattern pattern, const std::vector<Writes>& passes) {
  return [pattern, passes](const Layers& layers, std::int64_t layer, WorkerPool& pool) {
    constexpr std::int64_t kJob = std::int64_t{4} << 20;
    for (const Writes writes : passes) {
      std::byte* values = layers.values(layer, Written(writes, layers.layer_bytes()));
      pool.For(static_cast<std::size_t>(layers.layer_bytes() / kJob), [&](std::size_t job) {
        const std::int64_t offset = static_cast<std::int64_t>(job) * kJob;
        auto* to = reinterpret_cast<std::uint8_t*>(values + Written(writes, offset));
        benchmark::DoNotOptimize(StreamThrough(pattern, writes, layers.layer(layer).data + offset, kJob, to));
      });
    }
  };
}

struct Sample {
  double seconds = 0.0;
  double processor_seconds = 0.0;  // of all threads
  bool quiet = false;              // no other program took a processor away during the sample
};

// Walks through the layers in turn, so that no layer is cached when its turn comes, unless all fit the cache.
class Sampler {
 public:
  Sampler(const Layers& layers, WorkerPool& pool) : layers_(layers), pool_(pool) {}

  Sample Take(const LayerPass& pass) {
    layer_ = (layer_ + 1) % layers_.count();
    const double processor = ProcessorSeconds();
    const auto start = std::chrono::steady_clock::now();
    pass(layers_, layer_, pool_);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const double busy = ProcessorSeconds() - processor;
    return {seconds, busy, busy > 0.85 * seconds * static_cast<double>(pool_.threads())};
  }

 private:
  const Layers& layers_;
  WorkerPool& pool_;
  std::int64_t layer_ = 0;
};

// The limit with the faster read pattern, which is found by samples taken in turn.
LayerPass FastestLimit(Sampler& sampler, const std::vector<Writes>& passes) {
  constexpr int kTries = 30;
  const LayerPass patterns[] = {LimitPass(ReadPattern::kSequential, passes),
                                LimitPass(ReadPattern::kInterleaved, passes)};
  std::vector<double> seconds[2];
  for (int i = 0; i < 2 * kTries; ++i) seconds[i % 2].push_back(sampler.Take(patterns[i % 2]).seconds);
  return Median(seconds[0]) < Median(seconds[1]) ? patterns[0] : patterns[1];
}

// Source bytes per second from the cache, by one thread: the fastest of many samples.
double CachedSpeed(const LayerPass& pass, LayersShape shape) {
  constexpr int kTries = 300;
  shape.values_offset = 32;  // not aligned to cache lines, so that values are not streamed to memory
  WorkerPool pool(1);
  const Layers layers(shape);
  Sampler sampler(layers, pool);
  double fastest = 1.0;
  for (int i = 0; i < kTries; ++i) fastest = std::min(fastest, sampler.Take(pass).seconds);
  return static_cast<double>(layers.layer_bytes()) / fastest;
}

// `limit` says what the pass must do to memory at least: one entry for each time that it reads its source, with what it
// writes meanwhile.
void Measure(benchmark::State& state, const LayerPass& pass, const std::vector<Writes>& limit, const Ground& ground) {
  const auto threads = static_cast<std::size_t>(state.range(0));
  WorkerPool pool(threads);
  const Layers layers(ground.in_memory);
  Sampler sampler(layers, pool);
  const LayerPass limit_pass = FastestLimit(sampler, limit);
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
      const double both = (before.seconds + after.seconds) / 2.0;
      kernels.push_back(kernel.seconds);
      limits.push_back(both);
      ratios.push_back(both / kernel.seconds);
    }
    before = after;
  }
  const double gigabytes = static_cast<double>(layers.layer_bytes()) / 1e9;
  const double cached = CachedSpeed(pass, ground.in_cache) / 1e9 * static_cast<double>(threads);
  state.counters["quiet"] = static_cast<double>(ratios.size());
  state.counters["ratio_processor"] = Median(processor_ratios);
  state.counters["cached_GBps"] = cached;
  if (ratios.empty()) return;
  const double limit_speed = gigabytes / Median(limits);
  state.counters["kernel_GBps"] = gigabytes / Median(kernels);
  state.counters["limit_GBps"] = limit_speed;
  state.counters["ratio"] = Median(ratios);
  state.SetLabel(cached > limit_speed ? "bound by memory" : "bound by arithmetic");
}

LayerPass Quantize(const std::string& name, bool amax_given) {
  std::shared_ptr<const Recipe> recipe = MakeRecipe(name);  // shared with the copies that std::function makes
  return [recipe, amax_given](const Layers& layers, std::int64_t layer, WorkerPool& pool) {
    std::vector<KernelTensorView> outputs;
    std::byte* scales = layers.scales();
    for (const TensorSpec& spec : recipe->KernelTensors(DType::kBF16, layers.rows(), layers.cols())) {
      if (outputs.empty()) {
        outputs.push_back(KernelTensorView::Of(spec.shape, layers.values(layer, spec.num_bytes())));
      } else {
        outputs.push_back(KernelTensorView::Of(spec.shape, scales));
        scales += spec.num_bytes();
      }
    }
    AmaxInput amax;
    if (amax_given) amax = {layers.amax(), layers.row_amax()};
    recipe->Quantize(layers.layer(layer), 0, amax, outputs, pool);
  };
}

void ScanLayer(const Layers& layers, std::int64_t layer, WorkerPool& pool) {
  benchmark::DoNotOptimize(Scan(layers.layer(layer), pool));
}

void Register(const char* name, const LayerPass& pass, const std::vector<Writes>& limit, const Ground& ground = {}) {
  benchmark::RegisterBenchmark(name, [=](benchmark::State& state) { Measure(state, pass, limit, ground); })
      ->Arg(1)
      ->Arg(2)
      ->ArgName("threads")
      ->Iterations(kSamples)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

void RegisterAll() {
  const std::vector<Writes> half = {Writes::kHalf};
  Register("fp8_per_tensor/amax_given", Quantize("fp8_per_tensor", true), half);
  Register("fp8_per_tensor/amax_unknown", Quantize("fp8_per_tensor", false), {Writes::kNone, Writes::kHalf});
  Register("fp8_per_channel", Quantize("fp8_per_channel", false), half);
  Register("fp8_per_channel/amax_given", Quantize("fp8_per_channel", true), half);
  Register("fp8_per_block", Quantize("fp8_per_block", false), half, ByBlocks());
  Register("mxfp8", Quantize("mxfp8", false), half);
  Register("mxfp4", Quantize("mxfp4", false), {Writes::kQuarter});
  Register("nvfp4/amax_given", Quantize("nvfp4", true), {Writes::kQuarter});
  Register("nvfp4/zero_blocks", Quantize("nvfp4", true), {Writes::kQuarter}, WithZeroBlocks());
  Register("int8_per_channel", Quantize("int8_per_channel", false), half);
  Register("none", Quantize("none", false), {Writes::kAll});
  Register("scan", ScanLayer, {Writes::kNone});
}

}  // namespace
}  // namespace layercast::bench

int main(int argc, char** argv) {
  layercast::bench::ChooseTarget(argc, argv);
  layercast::bench::RegisterAll();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
}
