// How far receiving, processing and digesting overlap: the time from a published version to a committed one over a
// channel throttled to a multiple of the install's own speed, against the slower of the two alone, all in one run.
//   wire     the version is fetched and its digests are checked; it is not processed
//   install  the same version over a channel without a limit, processed and committed
//   both     over the throttled channel, processed and committed
// `ratio` is the median of both / max(wire, install) of the same turn. At the end a staged version is copied into
// place, when nothing is left to overlap that with; `staging` is the same ratio without that. Every turn publishes a
// new version. If the engine has several ranks, each has a link of its own, and all begin together; the last of them
// counts.
//
//   overlap_bench [TURNS [LAYERS [TP]]]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/one_rank.h"
#include "engine_side/quant/recipes/recipe_table.h"
#include "engine_side/reload/layout/amax_requests.h"
#include "src/base/check.h"
#include "src/session/choose/channel_chooser.h"
#include "src/session/fetch/fetch.h"

namespace layercast::bench {
namespace {

// A model of 0.98 GB: layers of 122 MB, or a larger number of layers of 31 MB.
Size ModelOfLayers(std::int64_t layers) {
  return layers <= 8 ? Size{layers, 2048, 8192, 16, 4, 128} : Size{layers, 1024, 4096, 8, 2, 128};
}
constexpr double kFactors[] = {0.25, 0.5, 1, 2, 4};
constexpr double kWarmUpRate = 0.5e9;  // the rate that the probe measures: low, so that later rates cause no warning
constexpr const char* kRecipe = "fp8_per_channel";

// A rank that does nothing with what it receives.
class Wire final : public FetchSink {
 public:
  Wire(const Size& size, const ParallelConfig& parallel, std::string publisher, const double& rate)
      : parallel_(parallel), publisher_(std::move(publisher)), channels_(Throttled("inproc", rate)) {
    const std::unique_ptr<Module> model = ModelOf(size, parallel);
    const Manifest manifest = Manifest::OfSpecs("bench", 0, SpecsOf(size));
    const LoadPlan plan = LoadPlan::Build(*model, manifest);
    const auto recipe = MakeRecipe(kRecipe);
    planned_ = MakeSchedule(plan, manifest, {.row_multiple = static_cast<std::uint64_t>(recipe->row_granularity())});
    amax_requests_ = AmaxRequests(plan, manifest, *recipe);
  }

  Times Fetch() {
    const auto begin = Deadline::Clock::now();
    const Deadline deadline = Deadline::After(std::chrono::minutes(1));
    FetchOptions options;
    options.channels = &channels_;
    const auto session =
        FetchSession::Open(std::vector{publisher_}, {"wire", ++attempt_, parallel_.tp_rank, parallel_.tp_size}, "",
                           std::nullopt, options, failpoints_, deadline);
    session->Fetch(planned_.schedule, amax_requests_, *this, deadline);
    const double took = MillisecondsSince(begin);
    return {took, took};
  }
  void OnTensor(std::uint32_t /*tensor*/, float /*amax*/, const Digest& /*digest*/) override {}
  void OnAxisAmax(std::uint32_t /*tensor*/, std::span<const float> /*amax*/) override {}
  void OnChunk(std::uint32_t /*chunk*/, std::span<const RegionView> /*regions*/) override {}

 private:
  const ParallelConfig parallel_;
  const std::string publisher_;
  ChannelChooser channels_;
  FailPoints failpoints_;
  PlannedSchedule planned_;
  std::vector<AmaxRequest> amax_requests_;
  std::uint64_t attempt_ = 0;
};

// Runs all ranks at once. Of each time, the longest counts.
Times Together(std::size_t ranks, const std::function<Times(std::size_t)>& take) {
  std::vector<Times> times(ranks);
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] { times[rank] = take(rank); });
    }
  }
  Times last;
  for (const Times& one : times) {
    last = {std::max(last.staged, one.staged), std::max(last.committed, one.committed)};
  }
  return last;
}

struct Figures {
  std::vector<double> wire, both, ratio, staging;
};

void Measure(Trainer& trainer, const Size& model, CommitPolicy commit, int turns, int tp) {
  double rate = kWarmUpRate;
  std::deque<Engine> engines;
  std::deque<Wire> wires;
  const auto ranks = static_cast<std::size_t>(tp);
  for (int rank = 0; rank < tp; ++rank) {
    const ParallelConfig parallel{.tp_rank = rank, .tp_size = tp};
    engines.emplace_back(model, kRecipe, commit, trainer.endpoint(), Throttled("inproc", rate), parallel);
    wires.emplace_back(model, parallel, trainer.endpoint(), rate);
  }
  const auto reload = [&](double at) {
    rate = at;
    trainer.Publish();
    return Together(ranks, [&](std::size_t rank) { return engines[rank].Reload(); });
  };
  const auto fetch = [&] {
    trainer.Publish();
    return Together(ranks, [&](std::size_t rank) { return wires[rank].Fetch(); }).committed;
  };
  fetch();
  reload(kWarmUpRate);
  std::vector<double> alone;
  for (int i = 0; i < 3; ++i) alone.push_back(reload(0).committed);
  const double own_speed = trainer.bytes() / tp / (Median(alone) * 1e-3);

  alone.clear();
  Figures figures[std::size(kFactors)];
  for (int turn = 0; turn < turns; ++turn) {
    for (std::size_t i = 0; i < std::size(kFactors); ++i) {
      const Times install = reload(0);
      alone.push_back(install.committed);
      const Times both = reload(kFactors[i] * own_speed);
      const double fetched = fetch();
      figures[i].wire.push_back(fetched);
      figures[i].both.push_back(both.committed);
      figures[i].ratio.push_back(both.committed / std::max(fetched, install.committed));
      figures[i].staging.push_back(both.staged / std::max(fetched, install.staged));
    }
  }
  for (const Engine& engine : engines) LAYERCAST_CHECK(engine.ServesWhatItTook());
  std::printf("%s: install alone %.1f ms, %.2f GB/s a rank\n", std::string(CommitPolicyName(commit)).c_str(),
              Median(alone), own_speed * 1e-9);
  std::printf("  %6s %9s %9s %9s %7s %8s\n", "factor", "GB/s", "wire, ms", "both, ms", "ratio", "staging");
  for (std::size_t i = 0; i < std::size(kFactors); ++i) {
    const Figures& at = figures[i];
    std::printf("  %6.2f %9.2f %9.1f %9.1f %7.2f %8.2f\n", kFactors[i], kFactors[i] * own_speed * 1e-9, Median(at.wire),
                Median(at.both), Median(at.ratio), Median(at.staging));
  }
}

}  // namespace
}  // namespace layercast::bench

int main(int argc, char** argv) {
  using namespace layercast;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const int turns = argc > 1 ? std::atoi(argv[1]) : 7;
  const int layers = argc > 2 ? std::atoi(argv[2]) : 8;
  const int tp = argc > 3 ? std::atoi(argv[3]) : 1;
  if (turns < 1 || layers < 1 || tp < 1) {
    std::fprintf(stderr, "overlap_bench [TURNS [LAYERS [TP]]]: expected positive numbers\n");
    return 2;
  }
  const bench::Size model = bench::ModelOfLayers(layers);
  bench::Trainer trainer(model);
  std::printf("%d layers, tp %d, %.0f MB of bf16, %s, %d turns\n", layers, tp, trainer.bytes() * 1e-6, bench::kRecipe,
              turns);
  for (const CommitPolicy commit : {CommitPolicy::kStaged, CommitPolicy::kUndo, CommitPolicy::kInPlace}) {
    bench::Measure(trainer, model, commit, turns, tp);
  }
}
