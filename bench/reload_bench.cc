// The layerwise pipeline: the speed of its two ways, the peak memory of a staged reload, and bookkeeping in ns per
// tensor. Speeds are source bytes per second of processor time of all threads, because that does not depend on what
// else the machine does. `memcpy` copies the same bytes once. `traffic` is the bytes of memory that each source byte
// costs, counted from what the stages read and write, without regard to caches. The model is two decoder layers of 122
// MB, or thousands of very small ones.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/decoder_layers.h"
#include "engine_side/plan/piece.h"
#include "engine_side/quant/recipes/recipe_table.h"
#include "engine_side/reload/commit/staging.h"
#include "engine_side/reload/layout/amax_requests.h"
#include "engine_side/reload/pipeline/pipeline.h"
#include "engine_side/reload/work/host_work.h"
#include "layercast/receiver.h"
#include "src/base/memory/caching_memory.h"
#include "src/base/memory/counting_memory.h"

namespace layercast::bench {
namespace {

constexpr Size kSmall{2000, 16, 16, 2, 1, 8};
constexpr float kAmax = 4.0F;

Manifest ManifestOf(const Size& size) {
  std::vector<ManifestEntry> entries;
  for (TensorSpec& spec : SpecsOf(size)) entries.push_back({std::move(spec), {}, kAmax});
  return Manifest("bench", 0, std::move(entries));
}

// One rank's model and memory, and a version's bytes: every tensor in a block of its own.
struct Bench {
  Bench(const Size& size, const std::string& recipe_name)
      : manifest(ManifestOf(size)), recipe(MakeRecipe(recipe_name)), model(ModelOf(size)) {
    for (const TensorSpec& spec : KernelTensorsOf(plan, *recipe)) {
      live.emplace_back(host, static_cast<std::size_t>(spec.num_bytes()));
      std::memset(live.back().data(), 0, live.back().size());
      table.push_back({spec.name, live.back().data(), spec.dtype, spec.shape, {}, {}});
    }
    for (const auto& entry : manifest.entries()) {
      source.emplace_back(host, static_cast<std::size_t>(entry.spec.num_bytes()));
      FillWithWeights(source.back().span());
    }
  }

  NamedTensor Tensor(std::size_t index) const {
    const TensorSpec& spec = manifest.entries()[index].spec;
    return {spec.name, {spec.dtype, spec.shape, source[index].data(), {}}, nullptr};
  }

  HostMemory host;
  CachingMemory layer_memory{host};  // as a receiver has
  WorkerPool pool{2};
  HostWork work{layer_memory, pool};
  std::unique_ptr<Place> place = MakeHostPlace(pool, host, layer_memory);
  FailPoints failpoints;
  Manifest manifest;
  std::unique_ptr<const Recipe> recipe;
  std::unique_ptr<Module> model;
  LoadPlan plan = LoadPlan::Build(*model, manifest);
  std::vector<Buffer> live, source;
  std::vector<CapturedBuffer> table;
};

void Load(Bench& bench, const KernelLayout& layout, Staging& staging, const PlannedSchedule& planned, bool direct) {
  ReloadPipeline pipeline(
      {bench.plan, bench.manifest, layout, *bench.recipe, staging, bench.work, bench.pool, bench.failpoints},
      direct ? std::span<const Piece>(planned.pieces) : std::span<const Piece>());
  for (const AmaxRequest& request : AmaxRequests(bench.plan, bench.manifest, *bench.recipe)) {
    const Shape& shape = bench.manifest.entry(request.tensor).spec.shape;
    const std::vector<float> values(static_cast<std::size_t>(NumKept(shape, request.kept)), kAmax);
    pipeline.amax().AddAxes(request.tensor, request.kept, Box::Whole(shape), values);
  }
  for (std::size_t i = 0; i < planned.pieces.size(); ++i) {
    const Region& region = planned.schedule.regions()[i];
    pipeline.Accept(planned.pieces[i], {bench.source[region.tensor].data() + region.offset, region.row_bytes,
                                        region.rows, region.rows > 1 ? region.stride : region.row_bytes});
  }
  pipeline.Finish();
}

void Pipeline(benchmark::State& state, const std::string& recipe, bool direct, double traffic) {
  Bench bench(kLarge, recipe);
  const CapturedBuffers captured = CapturedBuffers::Adopt(bench.table);
  const KernelLayout layout(bench.plan, *bench.recipe, captured);
  Staging staging(layout, *bench.place);
  const PlannedSchedule planned = MakeSchedule(
      bench.plan, bench.manifest, {.row_multiple = static_cast<std::uint64_t>(bench.recipe->row_granularity())});
  Load(bench, layout, staging, planned, direct);  // touches memory for the first time, and is not measured
  for (auto _ : state) Load(bench, layout, staging, planned, direct);
  state.counters["source_GBps"] = benchmark::Counter(static_cast<double>(bench.manifest.total_bytes()) / 1e9,
                                                     benchmark::Counter::kIsIterationInvariantRate);
  state.counters["traffic"] = traffic;
}

// What it costs to copy the same bytes, from a version's tensors to staged memory of the same size.
void Memcpy(benchmark::State& state) {
  Bench bench(kLarge, "none");
  std::vector<Buffer> copies;
  for (const Buffer& tensor : bench.source) {
    copies.emplace_back(bench.host, tensor.size());
    std::memset(copies.back().data(), 0, tensor.size());
  }
  for (auto _ : state) {
    for (std::size_t i = 0; i < copies.size(); ++i) {
      std::memcpy(copies[i].data(), bench.source[i].data(), copies[i].size());
    }
    benchmark::ClobberMemory();
  }
  state.counters["source_GBps"] = benchmark::Counter(static_cast<double>(bench.manifest.total_bytes()) / 1e9,
                                                     benchmark::Counter::kIsIterationInvariantRate);
  state.counters["traffic"] = 2;
}

void Bookkeeping(benchmark::State& state, bool direct) {
  Bench bench(kSmall, "none");
  const CapturedBuffers captured = CapturedBuffers::Adopt(bench.table);
  const KernelLayout layout(bench.plan, *bench.recipe, captured);
  Staging staging(layout, *bench.place);
  const PlannedSchedule planned = MakeSchedule(bench.plan, bench.manifest, {});
  for (auto _ : state) Load(bench, layout, staging, planned, direct);
  state.counters["ns_per_tensor"] =
      benchmark::Counter(static_cast<double>(bench.manifest.size()) * 1e-9,
                         benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

// What the bookkeeping of each tensor costs, without the work on its bytes.
void Coverage(benchmark::State& state) {
  Bench bench(kSmall, "none");
  const PlannedSchedule planned = MakeSchedule(bench.plan, bench.manifest, {});
  for (auto _ : state) {
    LayerBuffer buffer(bench.plan, bench.manifest, bench.work);
    for (const Piece& piece : planned.pieces) benchmark::DoNotOptimize(buffer.Count(piece));
  }
  state.counters["ns_per_tensor"] =
      benchmark::Counter(static_cast<double>(bench.manifest.size()) * 1e-9,
                         benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

std::uint64_t LargestLayer(const LoadPlan& plan) {
  std::uint64_t largest = 0;
  for (const PlannedLayer& layer : plan.layers()) {
    std::uint64_t bytes = 0;
    for (std::uint32_t i = 0; i < layer.num_parameters; ++i) {
      bytes += static_cast<std::uint64_t>(plan.parameters()[layer.first_parameter + i].spec.num_bytes());
    }
    largest = std::max(largest, bytes);
  }
  return largest;
}

// The peak of staging and layer buffers together, compared with one quantized copy and two layers in full precision.
void PeakMemory(benchmark::State& state, const std::string& recipe) {
  Bench bench(kLarge, recipe);
  CountingMemory memory(bench.host);
  ReceiverOptions options;
  options.staging_memory = options.layer_memory = &memory;
  Receiver receiver(ModelOf(kLarge), {}, {recipe}, CapturedBuffers::Adopt(bench.table), options);
  std::vector<NamedTensor> tensors;
  for (std::size_t i = 0; i < bench.source.size(); ++i) tensors.push_back(bench.Tensor(i));
  for (auto _ : state) receiver.ReloadWeights(FromIterator(MakeWeightsIterator(tensors), SpecsOf(kLarge)));
  std::uint64_t copy = 0;
  for (const Buffer& buffer : bench.live) copy += buffer.size();
  state.counters["peak_MB"] = static_cast<double>(memory.peak_bytes()) / 1e6;
  state.counters["copy_MB"] = static_cast<double>(copy) / 1e6;
  state.counters["layer_MB"] = static_cast<double>(LargestLayer(bench.plan)) / 1e6;
  state.counters["of_limit"] =
      static_cast<double>(memory.peak_bytes()) / static_cast<double>(copy + 2 * LargestLayer(bench.plan));
}

}  // namespace
}  // namespace layercast::bench

int main(int argc, char** argv) {
  using namespace layercast::bench;
  benchmark::RegisterBenchmark("memcpy", Memcpy)->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime();
  for (const char* recipe : {"none", "fp8_per_tensor", "fp8_per_channel", "fp8_per_block"}) {
    const std::string name(recipe);
    // `none` reads twice: a scan for NaN, then a copy. FP8 writes one byte for two.
    const double process = name == "none" ? 3.0 : 1.5;
    const auto add = [&](const std::string& what, auto run) {
      benchmark::RegisterBenchmark((what + "/" + name).c_str(), run)
          ->Unit(benchmark::kMillisecond)
          ->MeasureProcessCPUTime();
    };
    add("five_stages", [=](benchmark::State& state) { Pipeline(state, name, false, 2.0 + process); });
    add("direct", [=](benchmark::State& state) { Pipeline(state, name, true, process); });
    add("peak_memory", [=](benchmark::State& state) { PeakMemory(state, name); });
  }
  benchmark::RegisterBenchmark("bookkeeping/coverage", Coverage)->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark("bookkeeping/five_stages", [](benchmark::State& s) {
    Bookkeeping(s, false);
  })->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark("bookkeeping/direct", [](benchmark::State& s) {
    Bookkeeping(s, true);
  })->Unit(benchmark::kMillisecond);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
