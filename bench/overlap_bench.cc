// How far receiving, processing and digesting overlap: the time from a published version to a committed one over a
// channel throttled to a multiple of the install's own speed, against the slower of the two alone, all in one run.
//   wire     the version is fetched and its digests are checked; nothing is made of it
//   install  the same version over a channel without a limit, processed and committed
//   both     over the throttled channel, processed and committed
// `ratio` is the median of both / max(wire, install) of the same turn. A staged version is copied into place in the
// end, when nothing is left to overlap that with: `staging` is the same ratio up to there. Every turn publishes anew.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/one_rank.h"
#include "engine_side/reload/amax_requests.h"
#include "src/base/check.h"

namespace layercast::bench {
namespace {

constexpr Size kModel{8, 2048, 8192, 16, 4, 128};  // layers of 122 MB
constexpr double kFactors[] = {0.25, 0.5, 1, 2, 4};
constexpr double kWarmUpRate = 0.5e9;  // what the probe is then measured at: no rate below is a reason to warn
constexpr const char* kRecipe = "fp8_per_channel";

// A rank that makes nothing of what it receives.
class Wire final : public FetchSink {
 public:
  Wire(std::string publisher, const double& rate)
      : publisher_(std::move(publisher)), channels_(Throttled("inproc", rate)) {
    const std::unique_ptr<Module> model = ModelOf(kModel);
    const Manifest manifest = Manifest::OfSpecs("bench", 0, SpecsOf(kModel));
    const LoadPlan plan = LoadPlan::Build(*model, manifest);
    const auto recipe = MakeRecipe(kRecipe);
    planned_ = MakeSchedule(plan, manifest, {.row_multiple = static_cast<std::uint64_t>(recipe->row_granularity())});
    amax_requests_ = AmaxRequests(plan, manifest, *recipe);
  }

  double Fetch() {
    const auto begin = Deadline::Clock::now();
    const Deadline deadline = Deadline::After(std::chrono::minutes(1));
    FetchOptions options;
    options.channels = &channels_;
    const auto session = FetchSession::Open(std::vector{publisher_}, {"wire", ++attempt_, 0, 1}, "", std::nullopt,
                                            options, failpoints_, deadline);
    session->Fetch(planned_.schedule, amax_requests_, *this, deadline);
    return MillisecondsSince(begin);
  }
  void OnTensor(std::uint32_t /*tensor*/, float /*amax*/, const Digest& /*digest*/) override {}
  void OnAxisAmax(std::uint32_t /*tensor*/, std::span<const float> /*amax*/) override {}
  void OnChunk(std::uint32_t /*chunk*/, std::span<const RegionView> /*regions*/) override {}

 private:
  const std::string publisher_;
  ChannelChooser channels_;
  FailPoints failpoints_;
  PlannedSchedule planned_;
  std::vector<AmaxRequest> amax_requests_;
  std::uint64_t attempt_ = 0;
};

struct Figures {
  std::vector<double> wire, both, ratio, staging;
};

void Measure(Trainer& trainer, CommitPolicy commit, int turns) {
  double rate = kWarmUpRate;
  Engine engine(kModel, kRecipe, commit, trainer.endpoint(), rate);
  Wire wire(trainer.endpoint(), rate);
  const auto reload = [&](double at) {
    rate = at;
    trainer.Publish();
    return engine.Reload();
  };
  trainer.Publish();
  wire.Fetch();
  reload(kWarmUpRate);
  std::vector<double> alone;
  for (int i = 0; i < 3; ++i) alone.push_back(reload(0).committed);
  const double own_speed = trainer.bytes() / (Median(alone) * 1e-3);

  alone.clear();
  Figures figures[std::size(kFactors)];
  for (int turn = 0; turn < turns; ++turn) {
    for (std::size_t i = 0; i < std::size(kFactors); ++i) {
      const Times install = reload(0);
      alone.push_back(install.committed);
      const Times both = reload(kFactors[i] * own_speed);
      trainer.Publish();
      const double fetched = wire.Fetch();
      figures[i].wire.push_back(fetched);
      figures[i].both.push_back(both.committed);
      figures[i].ratio.push_back(both.committed / std::max(fetched, install.committed));
      figures[i].staging.push_back(both.staged / std::max(fetched, install.staged));
    }
  }
  LAYERCAST_CHECK(engine.ServesWhatItTook());
  std::printf("%s: install alone %.1f ms, %.2f GB/s\n", std::string(CommitPolicyName(commit)).c_str(), Median(alone),
              own_speed * 1e-9);
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
  bench::Trainer trainer(bench::kModel);
  std::printf("%.0f MB of bf16, %s, %d turns\n", trainer.bytes() * 1e-6, bench::kRecipe, turns);
  for (const CommitPolicy commit : {CommitPolicy::kStaged, CommitPolicy::kUndo, CommitPolicy::kInPlace}) {
    bench::Measure(trainer, commit, turns);
  }
}
