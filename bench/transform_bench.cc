// Transforms of a checkpoint's tensors: how fast stage 3 puts pieces into place that are laid out otherwise than the
// parameter, as a ratio to the streaming limit of the same traffic (as much written as read), measured before and after
// each sample. One thread, by its processor time, so other programs may run. Speeds are of source bytes.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "bench/layers.h"
#include "bench/samples.h"
#include "bench/streaming_limit.h"
#include "engine_side/reload/work/fuse_and_shard.h"
#include "src/session/chunks/chunk_digests.h"

namespace layercast::bench {
namespace {

constexpr int kSamples = 60;
constexpr std::int64_t kRows = 4096;
constexpr std::int64_t kCols = 4096;
constexpr std::uint64_t kElement = 2;             // bytes: bf16
constexpr std::uint64_t kPieceBytes = 4U << 20U;  // a chunk

const Layers& LayersInMemory() {
  static const Layers layers({.rows = kRows, .cols = kCols, .count = 8});
  return layers;
}

// How a tensor becomes the parameter. It has kRows x kCols elements, or twice as many in two alternating parts. Value.
struct Case {
  const char* name;
  Shape read_as;
  Box source;
  Shape parameter;
  ElementOrder order;
  std::uint64_t row_bytes, stride;  // of each contiguous run in the source, and from one run to the next
};

std::vector<Case> Cases() {
  const Shape matrix = {kRows, kCols};
  const Shape rows = {kRows / 2, 2, kCols};
  const Shape elements = {kRows, kCols / 2, 2};
  const std::uint64_t row = kCols * kElement;
  return {
      {"as_it_is", matrix, Box::Whole(matrix), matrix, {}, row, row},
      {"transposed", matrix, Box::Whole(matrix), {kCols, kRows}, {.transposed = true}, row, row},
      {"rows_in_turns", rows, Box::Slice(rows, 1, 0, 1), {kRows / 2, kCols}, {}, row, 2 * row},
      {"elements_in_turns", elements, Box::Slice(elements, 2, 0, 1), {kRows, kCols / 2}, {}, kElement, 2 * kElement},
      {"elements_in_turns_transposed",
       elements,
       Box::Slice(elements, 2, 0, 1),
       {kCols / 2, kRows},
       {.transposed = true},
       kElement,
       2 * kElement}};
}

double Seconds(const std::function<void()>& pass) {
  const double begin = ThreadSeconds();
  pass();
  return ThreadSeconds() - begin;
}

// Moves all of the source box, in pieces. Returns its bytes.
std::uint64_t Move(const Case& c, std::int64_t layer) {
  const Layers& layers = LayersInMemory();
  const TensorSpec parameter{"w", DType::kBF16, c.parameter};
  const Placement placement{0, 0, c.source, Box::Whole(c.parameter), {}, c.order};
  std::byte* const memory = layers.values(layer, parameter.num_bytes());
  const auto bytes = static_cast<std::uint64_t>(c.source.num_elements()) * kElement;
  for (std::uint64_t begin = 0; begin < bytes; begin += kPieceBytes) {
    const std::uint64_t end = std::min(begin + kPieceBytes, bytes);
    const std::byte* const from = layers.layer(layer).data + begin / c.row_bytes * c.stride;
    const bool packed = c.row_bytes == c.stride;
    const RegionView view = packed ? RegionView{from, end - begin, 1, end - begin}
                                   : RegionView{from, c.row_bytes, (end - begin) / c.row_bytes, c.stride};
    FuseAndShard(placement, {0, begin, end}, DType::kBF16, view, parameter, memory);
  }
  return bytes;
}

// The seconds that the streaming limit takes for as many bytes.
double LimitSeconds(std::uint64_t bytes, std::int64_t layer) {
  const Layers& layers = LayersInMemory();
  double fastest = 1e9;
  for (const ReadPattern pattern : {ReadPattern::kSequential, ReadPattern::kInterleaved}) {
    fastest = std::min(
        fastest, Seconds([&] {
          auto* const to = reinterpret_cast<std::uint8_t*>(layers.values(layer, static_cast<std::int64_t>(bytes)));
          benchmark::DoNotOptimize(StreamThrough(pattern, Writes::kAll, layers.layer(layer).data, bytes, to));
        }));
  }
  return fastest;
}

// Digests the pieces, as both ends do before stage 3.
std::uint64_t DigestPieces(const Case& c, std::int64_t layer) {
  const auto bytes = static_cast<std::uint64_t>(c.source.num_elements()) * kElement;
  for (std::uint64_t begin = 0; begin < bytes; begin += kPieceBytes) {
    const std::byte* const from = LayersInMemory().layer(layer).data + begin / c.row_bytes * c.stride;
    const RegionView view{from, c.row_bytes, std::min(kPieceBytes, bytes - begin) / c.row_bytes, c.stride};
    benchmark::DoNotOptimize(DigestOfViews({&view, 1}));
  }
  return bytes;
}

// Works on one layer, and returns its bytes.
using Pass = std::function<std::uint64_t(std::int64_t layer)>;

void Measure(benchmark::State& state, const Pass& pass) {
  std::vector<double> ratios;
  std::vector<double> speeds;
  std::int64_t layer = 0;
  const auto next = [&] { return layer = (layer + 1) % 8; };
  const std::uint64_t bytes = pass(next());
  double before = LimitSeconds(bytes, next());
  for (auto _ : state) {
    const double seconds = Seconds([&] { (void)pass(next()); });
    const double after = LimitSeconds(bytes, next());
    state.SetIterationTime(seconds);
    ratios.push_back((before + after) / 2.0 / seconds);
    speeds.push_back(static_cast<double>(bytes) / 1e9 / seconds);
    before = after;
  }
  state.counters["GBps"] = Median(speeds);
  state.counters["ratio"] = Median(ratios);
}

}  // namespace
}  // namespace layercast::bench

int main(int argc, char** argv) {
  using namespace layercast::bench;
  const auto add = [](const std::string& name, const Pass& pass) {
    benchmark::RegisterBenchmark(name.c_str(), [pass](benchmark::State& state) { Measure(state, pass); })
        ->Iterations(kSamples)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  };
  for (const Case& c : Cases()) {
    add(c.name, [c](std::int64_t layer) { return Move(c, layer); });
    add(std::string(c.name) + "/digest", [c](std::int64_t layer) { return DigestPieces(c, layer); });
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
