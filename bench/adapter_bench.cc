// What LoRA adapters add to a decode step of the built-in engine on the CPU, one rank, one thread: a Qwen2 of two wide
// layers, bf16, with adapters of rank 16 on all of its layers. Steps of the base and steps with adapters take turns, at
// the same positions, so that the ratio is of one machine at one time.
//
//   adapter_bench [TURNS]
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "bench/decoder_layers.h"
#include "bench/samples.h"
#include "engine_side/adapters/adapter_slots.h"
#include "engine_side/engine/built_in/engine.h"
#include "engine_side/engine/ranks/collective.h"
#include "engine_side/quant/recipes/recipe_table.h"

namespace layercast::bench {
namespace {

constexpr std::size_t kSlots = 8;
constexpr std::int32_t kRank = 16;

void Fill(std::byte* address, std::size_t count) {
  const std::vector<std::uint16_t> values = NormalBf16(count);
  std::copy_n(reinterpret_cast<const std::byte*>(values.data()), count * sizeof(std::uint16_t), address);
}

class Turns {
 public:
  Turns(const Size& size, std::int64_t max_rank)
      : tree_(ModelOf(size)),
        slots_(AdapterTermsOf(*tree_), {.slots = kSlots, .max_rank = max_rank}, memory_, memory_),
        engine_(*tree_, {}, *MakeRecipe("none"), memory_, Peers{alone_}, &slots_) {
    for (const CapturedBuffer& buffer : engine_.Buffers()) {
      Fill(buffer.address, static_cast<std::size_t>(NumElements(buffer.shape)));
    }
    for (std::size_t slot = 0; slot < kSlots; ++slot) {
      for (const CapturedBuffer& buffer : slots_.Buffers(slot)) {
        Fill(buffer.address, static_cast<std::size_t>(NumElements(buffer.shape)));
      }
      std::ranges::fill(slots_.Numbers(slot), AdapterNumbers{.rank = kRank, .scale = 2.0F});
    }
  }

  // One step of `batch` sequences, each with its own adapter or all with none; milliseconds.
  double Step(std::size_t batch, bool adapted) {
    std::vector<SequenceStep> steps;
    for (std::size_t i = 0; i < batch; ++i) {
      steps.push_back({2 * i + (adapted ? 1 : 0), token_, false, adapted ? static_cast<std::int32_t>(i) : -1});
    }
    const auto begin = std::chrono::steady_clock::now();
    (void)engine_.Forward(steps);
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  }

  void Report(std::size_t batch, int turns) {
    std::vector<double> base, adapted, ratios;
    for (int turn = 0; turn < turns + 3; ++turn) {
      const double without = Step(batch, false), with = Step(batch, true);
      if (turn < 3) continue;  // warms up
      base.push_back(without);
      adapted.push_back(with);
      ratios.push_back(with / without);
    }
    engine_.DropAll();
    std::printf("batch %zu, %zu adapters: base %.2f ms, adapted %.2f ms, median of the ratios %.3f\n", batch, batch,
                Median(base), Median(adapted), Median(ratios));
  }

 private:
  HostMemory memory_;
  SingleRank alone_;
  std::unique_ptr<Module> tree_;
  AdapterSlots slots_;
  Engine engine_;
  const std::vector<std::int32_t> token_ = {7};
};

}  // namespace
}  // namespace layercast::bench

int main(int argc, char** argv) {
  using namespace layercast::bench;
  const int turns = argc > 1 ? std::atoi(argv[1]) : 60;
  constexpr Size kNarrow{3, 1024, 3072, 16, 8, 128};
  for (const Size& size : {kLarge, kNarrow}) {
    for (const std::int64_t max_rank : {16, 64}) {
      std::printf("hidden %lld, %lld layers, rank %d of at most %lld\n", static_cast<long long>(size.hidden),
                  static_cast<long long>(size.layers), kRank, static_cast<long long>(max_rank));
      Turns bench(size, max_rank);
      bench.Report(1, turns);
      bench.Report(8, turns);
    }
  }
}
