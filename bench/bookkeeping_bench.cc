// What a sync costs for each tensor, whatever its size: 24 004 tensors of at most 512 bytes, published and reloaded
// over `inproc` again and again. Everything is measured: the walk, magnitudes and digests, manifest, session, pipeline
// and commit.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/one_rank.h"
#include "src/base/check.h"

namespace layercast::bench {
namespace {

constexpr Size kSmall{2000, 16, 16, 2, 1, 8};
constexpr double kNoLimit = 0;

struct Sync {
  double publish = 0;  // microseconds for each tensor
  double reload = 0;
};

Sync Measure(Trainer& trainer, Engine& engine) {
  const auto begin = Deadline::Clock::now();
  trainer.Publish();
  const double published = MillisecondsSince(begin);
  const Times reload = engine.Reload();
  return {published * 1e3 / trainer.tensors(), reload.committed * 1e3 / trainer.tensors()};
}

void Run(const std::string& recipe, int turns) {
  Trainer trainer(kSmall);
  Engine engine(kSmall, recipe, CommitPolicy::kStaged, trainer.endpoint(), Throttled("inproc", kNoLimit));
  const Sync first = Measure(trainer, engine);  // the first sync makes the plan
  std::vector<double> publish, reload;
  for (int i = 0; i < turns; ++i) {
    const Sync sync = Measure(trainer, engine);
    publish.push_back(sync.publish);
    reload.push_back(sync.reload);
  }
  LAYERCAST_CHECK(engine.ServesWhatItTook());
  std::printf("%-16s first: publish %.2f us, reload %.2f us; then: publish %.2f us, reload %.2f us\n", recipe.c_str(),
              first.publish, first.reload, Median(publish), Median(reload));
}

}  // namespace
}  // namespace layercast::bench

int main(int argc, char** argv) {
  const int turns = argc > 1 ? std::atoi(argv[1]) : 31;
  const std::vector<std::string> both = {"none", "fp8_per_channel"};
  for (const std::string& recipe : argc > 2 ? std::vector<std::string>{argv[2]} : both) {
    layercast::bench::Run(recipe, turns);
  }
}
