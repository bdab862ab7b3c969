#include "cli/doctor/measurement.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "layercast/memory.h"
#include "layercast/publisher.h"
#include "src/base/digest/digest_all.h"
#include "src/base/threads/worker_pool.h"
#include "src/session/choose/probe_publisher.h"
#include "src/tensor/kernels/stream_copy.h"
#include "src/transport/all/channel_names.h"

namespace layercast::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kBytes = std::size_t{128} << 20;  // more than caches hold
constexpr int kPasses = 3;

// The best of some passes: what is slower was somebody else's doing.
template <class Pass>
double BestRate(const Pass& pass) {
  double best = 0;
  for (int i = 0; i < kPasses; ++i) {
    const Clock::time_point begin = Clock::now();
    pass();
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    if (seconds > 0) best = std::max(best, static_cast<double>(kBytes) * 1e-9 / seconds);
  }
  return best;
}

template <class Work>
Rates RatesOf(std::size_t threads, const Work& work) {
  WorkerPool one(1);
  WorkerPool all(threads);
  return {BestRate([&] { work(one); }), BestRate([&] { work(all); })};
}

// Measured with a publisher of this process, whose ends are reached as another process would reach them. It offers one
// small tensor: the bytes to measure with come beside any version.
std::vector<ChannelTrial> OwnChannels(std::size_t threads, Deadline deadline) {
  const KeyOptions no_keys{.insecure = true};
  Publisher publisher({.keys = no_keys, .threads = threads});
  const std::vector<std::byte> bytes(64);
  const TensorView tensor{DType::kU8, {static_cast<std::int64_t>(bytes.size())}, bytes.data()};
  static_cast<void>(publisher.Publish({.lineage = "doctor", .run = std::string()},
                                      Weights::Once({}, MakeWeightsIterator({{.name = "bytes", .tensor = tensor}}))));
  std::vector<ChannelTrial> trials = ProbePublisher(publisher.endpoint(), Keys::From(no_keys), deadline).trials;
  std::erase_if(trials, [](const ChannelTrial& trial) { return StaysInTheProcess(trial.name); });
  return trials;
}

}  // namespace

Measurement Measure(std::size_t threads, Deadline deadline) {
  HostMemory memory;
  const Buffer from(memory, kBytes);
  const Buffer to(memory, kBytes);
  std::ranges::fill(from.span(), std::byte{1});
  std::ranges::fill(to.span(), std::byte{2});
  Measurement measured{.threads = threads};
  measured.copy = RatesOf(threads, [&](WorkerPool& pool) { StreamCopy(from.data(), kBytes, to.data(), pool); });
  measured.digest = RatesOf(threads, [&](WorkerPool& pool) {
    const std::span<const std::byte> block = from.span();
    Digest digest;
    DigestAll({&block, 1}, {&digest, 1}, pool);
  });
  measured.channels = OwnChannels(threads, deadline);
  return measured;
}

}  // namespace layercast::cli
