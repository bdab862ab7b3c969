// What a timeline costs: a version of 244 MB is published and taken over `shm` by one rank in the same process, every
// digest checked, and committed; without a timeline, with one, and with none again, in turns.
//   off     the recorder is there and switched off; `ratio` is of two such syncs, and says how much the rest of the
//   machine
//           disturbs them
//   on      it records
//   tell    what it takes to put the spans into JSON, which a reload does after its commit
// `ratio` is the median of a turn's figure / that turn's first: of the time, and of the processor time of both ends,
// which other programs disturb less. `span` is a stage's scope by itself, as the pipeline has two or three for each
// piece.
//
//   trace_bench [TURNS]
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "bench/one_rank.h"
#include "bench/samples.h"
#include "engine_side/reload/pipeline/stage_clock.h"
#include "src/trace/process_trace.h"
#include "src/trace/trace_recorder.h"
#include "src/transport/all/transports.h"

namespace layercast::bench {
namespace {

constexpr const char* kChannel = "shm";

// In milliseconds.
struct Cost {
  double elapsed = 0;
  double processor = 0;
};

class Bench {
 public:
  Bench()
      : trainer_(kLarge, kChannel, true),
        engine_(kLarge, "fp8_per_channel", CommitPolicy::kStaged, trainer_.endpoint(),
                TransportsNamed(std::vector<std::string>{kChannel}, Keys()), {}, &trace_) {}

  Cost Sync(bool records) {
    trainer_.Publish();
    trace_.Begin(records ? TraceRecorder::kSpansPerLane : 0);
    const double processor = ProcessorSeconds();
    const auto begin = Deadline::Clock::now();
    engine_.Reload();
    return {MillisecondsSince(begin), (ProcessorSeconds() - processor) * 1e3};
  }

  // Of the sync that was recorded last. Returns the milliseconds.
  double Tell() {
    const auto begin = Deadline::Clock::now();
    const ProcessTrace trace = TraceOfThisProcess("rank 0", "rank", trace_.Take());
    const std::string text = ProcessTraceToJson(trace).dump();
    const double took = MillisecondsSince(begin);
    spans_ = 0;
    for (const TraceLane& lane : trace.lanes) spans_ += lane.count();
    bytes_ = text.size();
    return took;
  }
  std::uint64_t spans() const { return spans_; }
  std::size_t bytes() const { return bytes_; }

 private:
  Trainer trainer_;
  TraceRecorder trace_;
  Engine engine_;
  std::uint64_t spans_ = 0;
  std::size_t bytes_ = 0;
};

double NanosecondsOfSpan(TraceRecorder* trace) {
  constexpr int kSpans = 1'000'000;
  StageClock clock(trace);
  const std::string layer = "model.layers.0.mlp.gate_up_proj";
  const double begin = ThreadSeconds();
  for (int i = 0; i < kSpans; ++i) const StageClock::Scope timing(clock[Stage::kQuantize], &layer);
  return (ThreadSeconds() - begin) * 1e9 / kSpans;
}

void PrintSpans() {
  TraceRecorder off;
  TraceRecorder on;
  on.Begin();
  std::array<std::vector<double>, 3> ns;
  for (int turn = 0; turn < 9; ++turn) {
    ns[0].push_back(NanosecondsOfSpan(nullptr));
    ns[1].push_back(NanosecondsOfSpan(&off));
    ns[2].push_back(NanosecondsOfSpan(&on));
  }
  std::printf("span: no recorder %.1f ns, off %.1f ns, on %.1f ns\n", Median(ns[0]), Median(ns[1]), Median(ns[2]));
}

class Row {
 public:
  explicit Row(const char* name) : name_(name) {}
  void Add(const Cost& cost, const Cost& first) {
    elapsed_.push_back(cost.elapsed);
    elapsed_ratio_.push_back(cost.elapsed / first.elapsed);
    processor_ratio_.push_back(cost.processor / first.processor);
  }
  void Print() const {
    std::printf("%-4s %6.1f ms  ratio %.3f  processor ratio %.3f\n", name_, Median(elapsed_), Median(elapsed_ratio_),
                Median(processor_ratio_));
  }

 private:
  const char* name_;
  std::vector<double> elapsed_, elapsed_ratio_, processor_ratio_;
};

void Run(int turns) {
  Bench bench;
  bench.Sync(false);  // touches memory for the first time, and is not measured
  Row off("off");
  Row on("on");
  std::vector<double> tell;
  for (int turn = 0; turn < turns; ++turn) {
    const Cost first = bench.Sync(false);
    std::array<Cost, 2> next;  // which of the two comes first changes with each turn
    for (const bool second : {false, true}) {
      const bool records = second == (turn % 2 == 0);
      next.at(records ? 1 : 0) = bench.Sync(records);
      if (records) tell.push_back(bench.Tell());
    }
    off.Add(next[0], first);
    on.Add(next[1], first);
  }
  off.Print();
  on.Print();
  std::printf("tell %6.2f ms  %llu spans, %zu bytes\n", Median(tell), static_cast<unsigned long long>(bench.spans()),
              bench.bytes());
}

}  // namespace
}  // namespace layercast::bench

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  layercast::bench::PrintSpans();
  layercast::bench::Run(argc > 1 ? std::atoi(argv[1]) : 41);
  return 0;
}
