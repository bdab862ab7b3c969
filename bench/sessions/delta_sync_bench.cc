// What a delta saves over a slow link: a version of 256 MiB, of which 1 % of the bf16 elements have changed, is taken
// by one rank in the same process over a link of 1 Gb/s, every digest checked, kept, and thrown away; dense, and as a
// delta of the version before, in turns. The link is throttled_transport.h's over `inproc`: chunks arrive no earlier
// than it would have brought them, and it takes no core.
//   delta        the publisher encodes what changed, for the first time
//   delta again  it has that already, as for the second engine with this base and schedule
// `ratio` is the median of a turn's dense time / that turn's figure.
//
//   delta_sync_bench [TURNS]

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bench/samples.h"
#include "bench/throttled_transport.h"
#include "src/session/choose/channel_chooser.h"
#include "src/session/deltas/source_copy.h"
#include "src/session/fetch/fetch.h"
#include "src/session/offer/offer_service.h"

namespace layercast::bench {
namespace {

constexpr std::size_t kThreads = 2;  // at either end, as publishers and receivers have by default
constexpr std::size_t kBytes = std::size_t{256} << 20;
constexpr std::size_t kChunkBytes = std::size_t{4} << 20;
constexpr double kLink = 1e9 / 8;  // bytes per second

// What nobody uses of a version.
class Nowhere final : public FetchSink {
 public:
  void OnTensor(std::uint32_t /*tensor*/, float /*amax*/, const Digest& /*digest*/) override {}
  void OnAxisAmax(std::uint32_t /*tensor*/, std::span<const float> /*amax*/) override {}
  void OnChunk(std::uint32_t /*chunk*/, std::span<const RegionView> /*regions*/) override {}
};

// A version, in memory of the publisher.
struct Published {
  Buffer weights;
  std::shared_ptr<OfferedVersion> version;
};

class Bench {
 public:
  Bench() : service_({.endpoint = "tcp://127.0.0.1:0", .name = "publisher"}, serving_, failpoints_) {
    for (std::size_t at = 0; at < kBytes; at += kChunkBytes) {
      schedule_.Add(std::vector<Region>{{.tensor = 0, .offset = at, .row_bytes = kChunkBytes, .rows = 1, .stride = 0}});
    }
  }
  ~Bench() { service_.Stop(); }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  // The version before with 1 % of its elements one ulp up or down. Two are kept.
  void Publish() {
    Buffer weights(service_.arena(), kBytes);
    auto* const elements = reinterpret_cast<std::uint16_t*>(weights.data());
    if (published_.empty()) {
      const std::vector<std::uint16_t> sample = NormalBf16(kChunkBytes / 2);
      for (std::size_t at = 0; at < kBytes; at += kChunkBytes)
        std::memcpy(weights.data() + at, sample.data(), kChunkBytes);
    } else {
      std::memcpy(weights.data(), published_.back().weights.data(), kBytes);
      std::geometric_distribution<std::size_t> gaps(0.01);
      for (std::size_t i = gaps(random_); i < kBytes / 2; i += 1 + gaps(random_)) {
        elements[i] = static_cast<std::uint16_t>(elements[i] + (random_() % 2 == 0 ? 1 : -1));
      }
    }
    const Shape shape = {static_cast<std::int64_t>(kBytes / 2)};
    Manifest manifest(
        "run", ++step_,
        std::vector<ManifestEntry>{{.spec = {"w", DType::kBF16, shape}, .digest = {1, step_}, .amax = 1}});
    const Offer offer{.id = service_.NextOfferId(), .tensors = {{weights.data(), kBytes}}};
    auto version = std::make_shared<OfferedVersion>(std::move(manifest), offer, false);
    service_.Offer(version);
    published_.push_back({std::move(weights), std::move(version)});
    if (published_.size() <= 2) return;
    service_.Withdraw(published_.front().version);
    published_.front().version->WaitReleased(Deadline::After(std::chrono::seconds(30)));
    service_.Forget(published_.front().version);
    published_.pop_front();
  }

  // In milliseconds. `base` is what is kept; it becomes what was taken if `moves_on`.
  double Fetch(DeltaUse use, bool moves_on) {
    FetchOptions options;
    options.channels = &channels_;
    options.channel = "inproc";
    options.measure = false;
    options.into.pool = &taking_;
    options.into.source = &memory_;
    options.base = base_;
    options.delta = use;
    Nowhere sink;
    const auto begin = Deadline::Clock::now();
    const Deadline deadline = Deadline::After(std::chrono::minutes(5));
    const auto session = FetchSession::Open(std::vector{service_.endpoint()}, {"engine", 1, 0, 1}, "run", step_,
                                            options, failpoints_, deadline);
    session->Fetch(schedule_, {}, sink, deadline);
    const std::chrono::duration<double, std::milli> elapsed = Deadline::Clock::now() - begin;
    encoded_ = session->stats().delta->encoded_bytes;
    if (moves_on) base_ = session->source();
    return elapsed.count();
  }
  double percent() const { return 100 * static_cast<double>(encoded_) / static_cast<double>(kBytes); }

 private:
  const double link_ = kLink;
  WorkerPool serving_{kThreads};
  WorkerPool taking_{kThreads};
  FailPoints failpoints_;
  OfferService service_;
  Schedule schedule_;
  ChannelChooser channels_{Throttled("inproc", link_)};
  HostMemory memory_;
  std::shared_ptr<const SourceCopy> base_;
  std::deque<Published> published_;
  std::mt19937_64 random_{5};
  std::uint64_t step_ = 0;
  std::uint64_t encoded_ = 0;
};

void Measure(Bench& bench, int turns) {
  std::vector<double> dense, first, again, first_ratio, again_ratio;
  bench.Publish();
  bench.Fetch(DeltaUse::kNever, true);
  for (int turn = 0; turn < turns; ++turn) {
    bench.Publish();
    dense.push_back(bench.Fetch(DeltaUse::kNever, false));
    first.push_back(bench.Fetch(DeltaUse::kAlways, false));
    again.push_back(bench.Fetch(DeltaUse::kAlways, true));
    first_ratio.push_back(dense.back() / first.back());
    again_ratio.push_back(dense.back() / again.back());
  }
  std::printf("256 MiB over 1 Gb/s, 1 %% changed: %.2f %% of the bytes\n", bench.percent());
  std::printf("  dense        %7.0f ms\n", Median(dense));
  std::printf("  delta        %7.0f ms  ratio %5.1f\n", Median(first), Median(first_ratio));
  std::printf("  delta again  %7.0f ms  ratio %5.1f\n", Median(again), Median(again_ratio));
}

}  // namespace
}  // namespace layercast::bench

int main(int argc, char** argv) {
  layercast::bench::Bench bench;
  layercast::bench::Measure(bench, argc > 1 ? std::max(1, std::atoi(argv[1])) : 5);
  return 0;
}
