// What a signature costs: a version of 512 MiB is taken over `shm` by one rank in the same process, each chunk copied
// out, its digest checked, and thrown away; without signatures, and with them, in turns.
//   signed        the publisher hashes what it is asked for, for the first time
//   signed again  it has the hashes of that schedule already, as for the second engine that takes the version
// `ratio` is the median of a turn's figure / that turn's without: of the time, and of the processor time of both ends,
// which other programs disturb less.
//
//   signed_bench [TURNS]

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "bench/samples.h"
#include "src/base/digest/digest.h"
#include "src/net/keys/signing_key.h"
#include "src/session/choose/channel_chooser.h"
#include "src/session/fetch/fetch.h"
#include "src/session/offer/offer_service.h"

namespace layercast::bench {
namespace {

constexpr std::size_t kThreads = 2;  // at either end, as publishers and receivers have by default
constexpr std::size_t kBytes = std::size_t{512} << 20;
constexpr std::size_t kChunkBytes = std::size_t{4} << 20;

// What nobody uses of a version.
class NoSink final : public FetchSink {
 public:
  void OnTensor(std::uint32_t /*tensor*/, float /*amax*/, const Digest& /*digest*/) override {}
  void OnAxisAmax(std::uint32_t /*tensor*/, std::span<const float> /*amax*/) override {}
  void OnChunk(std::uint32_t /*chunk*/, std::span<const RegionView> /*regions*/) override {}
};

// In milliseconds.
struct Cost {
  double elapsed = 0;
  double processor = 0;
};

class Bench {
 public:
  explicit Bench(const std::string& key)
      : service_({.endpoint = "tcp://127.0.0.1:0", .keys = Keys::From({.sign = key}), .name = "publisher"}, serving_,
                 failpoints_),
        weights_(service_.arena(), kBytes),
        trusting_(Keys::From({.trust = key + ".public"})) {
    const std::vector<std::uint16_t> sample = NormalBf16(kChunkBytes / 2);
    for (std::size_t at = 0; at < kBytes; at += kChunkBytes) {
      std::memcpy(weights_.data() + at, sample.data(), kChunkBytes);
      schedule_.Add(std::vector<Region>{{.tensor = 0, .offset = at, .row_bytes = kChunkBytes, .rows = 1, .stride = 0}});
    }
  }
  ~Bench() { service_.Stop(); }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  // A version that nobody has asked for yet.
  void Publish() {
    if (version_ != nullptr) {
      service_.Withdraw(version_);
      version_->WaitReleased(Deadline::After(std::chrono::seconds(30)));
      service_.Forget(version_);
    }
    const Shape shape = {static_cast<std::int64_t>(kBytes / 2)};
    Manifest manifest("run", ++step_,
                      std::vector<ManifestEntry>{{.spec = {"w", DType::kBF16, shape}, .digest = {1, 2}, .amax = 1}});
    const Offer offer{.id = service_.NextOfferId(), .tensors = {{weights_.data(), kBytes}}};
    version_ = std::make_shared<OfferedVersion>(std::move(manifest), offer, false);
    service_.Offer(version_);
  }

  Cost Fetch(bool expects_signed) {
    FetchOptions options;
    options.channels = &channels_;
    options.channel = "shm";
    options.measure = false;
    options.into.pool = &taking_;
    if (expects_signed) options.keys = trusting_;
    NoSink sink;
    const double processor = ProcessorSeconds();
    const auto begin = Deadline::Clock::now();
    const Deadline deadline = Deadline::After(std::chrono::minutes(5));
    FetchSession::Open(std::vector{service_.endpoint()}, {"engine", 1, 0, 1}, "run", step_, options, failpoints_,
                       deadline)
        ->Fetch(schedule_, {}, sink, deadline);
    const std::chrono::duration<double> elapsed = Deadline::Clock::now() - begin;
    return {elapsed.count() * 1e3, (ProcessorSeconds() - processor) * 1e3};
  }

 private:
  WorkerPool serving_{kThreads};
  WorkerPool taking_{kThreads};
  FailPoints failpoints_;
  OfferService service_;
  const Buffer weights_;
  const Keys trusting_;
  Schedule schedule_;
  ChannelChooser channels_;
  std::shared_ptr<OfferedVersion> version_;
  std::uint64_t step_ = 0;
};

class Row {
 public:
  explicit Row(const char* name) : name_(name) {}
  void Add(const Cost& cost, const Cost& without) {
    elapsed_.push_back(cost.elapsed);
    processor_.push_back(cost.processor);
    elapsed_ratio_.push_back(cost.elapsed / without.elapsed);
    processor_ratio_.push_back(cost.processor / without.processor);
  }
  void Print() const {
    std::printf("  %-13s %5.0f ms  ratio %5.2f  processor %5.0f ms  ratio %5.2f\n", name_, Median(elapsed_),
                Median(elapsed_ratio_), Median(processor_), Median(processor_ratio_));
  }

 private:
  const char* const name_;
  std::vector<double> elapsed_, processor_, elapsed_ratio_, processor_ratio_;
};

void Measure(Bench& bench, int turns) {
  Row without("not signed"), first("signed"), again("signed again");
  for (int turn = -1; turn < turns; ++turn) {
    bench.Publish();
    const Cost plain = bench.Fetch(false);
    bench.Publish();
    const Cost hashed = bench.Fetch(true);
    const Cost known = bench.Fetch(true);
    if (turn < 0) continue;  // memory is touched for the first time
    without.Add(plain, plain);
    first.Add(hashed, plain);
    again.Add(known, plain);
  }
  for (const Row* row : {&without, &first, &again}) row->Print();
}

}  // namespace
}  // namespace layercast::bench

int main(int argc, char** argv) {
  using namespace layercast;
  const int turns = argc > 1 ? std::atoi(argv[1]) : 7;
  if (turns < 1) {
    std::fprintf(stderr, "signed_bench [TURNS]: expected a positive number\n");
    return 2;
  }
  std::string folder = (std::filesystem::temp_directory_path() / "signed-bench-XXXXXX").native();
  if (::mkdtemp(folder.data()) == nullptr) return 1;
  MakeSigningKey(folder + "/key");
  {
    bench::Bench bench(folder + "/key");
    std::printf("%zu MiB of bf16 over shm, %d turns\n", bench::kBytes >> 20, turns);
    bench::Measure(bench, turns);
  }
  std::filesystem::remove_all(folder);
}
