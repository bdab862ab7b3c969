// What a stream costs beside a snapshot of the same weights over the same channel: from the call of Publish until all
// ranks of an engine have committed, in turns. `us` is what the stream takes longer for each tensor and rank.
//
//   stream_bench [TURNS]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "bench/one_rank.h"
#include "src/base/check.h"
#include "src/transport/all/transports.h"

namespace layercast::bench {
namespace {

constexpr const char* kRecipe = "fp8_per_channel";

struct Case {
  const char* name;
  Size model;
  int tp;
};

double Sync(Trainer& trainer, std::deque<Engine>& ranks, PublishMode mode) {
  const auto begin = Deadline::Clock::now();
  trainer.Publish(mode);
  {
    std::vector<std::jthread> threads;
    for (Engine& rank : ranks) threads.emplace_back([&rank] { rank.Reload(); });
  }
  return MillisecondsSince(begin);
}

void Measure(const Case& of, const std::string& channel, int turns) {
  Trainer trainer(of.model, channel, /*copies=*/true);
  std::deque<Engine> ranks;
  for (int rank = 0; rank < of.tp; ++rank) {
    ranks.emplace_back(of.model, kRecipe, CommitPolicy::kStaged, trainer.endpoint(),
                       TransportsNamed(std::vector<std::string>{channel}),
                       ParallelConfig{.tp_rank = rank, .tp_size = of.tp});
  }
  std::vector<double> snapshots, streams, ratios;
  for (int turn = -1; turn < turns; ++turn) {
    const double snapshot = Sync(trainer, ranks, PublishMode::kSnapshot);
    const double stream = Sync(trainer, ranks, PublishMode::kStream);
    if (turn < 0) continue;  // plans are made, and memory is touched for the first time
    snapshots.push_back(snapshot);
    streams.push_back(stream);
    ratios.push_back(stream / snapshot);
  }
  for (const Engine& rank : ranks) LAYERCAST_CHECK(rank.ServesWhatItTook());
  std::printf("%-5s %-4s tp %d: %5.0f tensors, %4.0f MB: snapshot %6.1f ms, stream %6.1f ms, ratio %.2f, %.1f us\n",
              of.name, channel.c_str(), of.tp, trainer.tensors(), trainer.bytes() * 1e-6, Median(snapshots),
              Median(streams), Median(ratios), (Median(streams) - Median(snapshots)) * 1e3 / trainer.tensors() / of.tp);
}

}  // namespace
}  // namespace layercast::bench

int main(int argc, char** argv) {
  using namespace layercast::bench;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const int turns = argc > 1 ? std::atoi(argv[1]) : 7;
  const Case cases[] = {{"tiny", {400, 16, 16, 2, 2, 8}, 2},
                        {"many", {1700, 16, 16, 2, 2, 8}, 2},
                        {"large", kQwen3Shapes, 1},
                        {"large", kQwen3Shapes, 2}};
  for (const Case& of : cases) {
    for (const char* channel : {"shm", "zmq"}) Measure(of, channel, turns);
  }
}
