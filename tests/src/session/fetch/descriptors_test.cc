// Descriptors: a stream costs the same whatever it has to send, and however much of it waits for receivers.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/channels_here.h"
#include "tests/support/session/publishing.h"
#include "tests/support/session/watched_walk.h"

namespace layercast::testing {
namespace {

constexpr std::size_t kMostSlots = 256;  // of a stream's window

std::size_t OpenDescriptors() {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

// Counts the descriptors of this process, which has both ends, when the publisher's window is full.
class CountsWhenFull final : public FetchSink {
 public:
  CountsWhenFull(const std::atomic<std::size_t>& yielded, std::size_t full) : yielded_(yielded), full_(full) {}
  void OnTensor(std::uint32_t /*tensor*/, float /*amax*/, const Digest& /*digest*/) override {
    if (tensors++ != 0) return;
    const Deadline deadline = Soon();
    while (yielded_ < full_ && !deadline.Passed()) std::this_thread::yield();
    descriptors = OpenDescriptors();
  }
  void OnAxisAmax(std::uint32_t /*tensor*/, std::span<const float> /*amax*/) override {}
  void OnChunk(std::uint32_t /*chunk*/, std::span<const RegionView> /*regions*/) override {}

  std::size_t tensors = 0;
  std::size_t descriptors = 0;

 private:
  const std::atomic<std::size_t>& yielded_;
  const std::size_t full_;
};

class DescriptorsTest : public SessionTest, public ::testing::WithParamInterface<std::string> {
 protected:
  // How many are open while as much of a stream of so many tensors waits as its window takes.
  std::size_t WhileAStreamWaits(std::uint32_t tensors) {
    Weights weights;
    Schedule schedule;
    for (std::uint32_t i = 0; i < tensors; ++i) {
      weights.AddCounting({"t" + std::to_string(i), DType::kF32, {1}}, static_cast<float>(i));
      schedule.Add(std::vector<Region>{{.tensor = i, .offset = 0, .row_bytes = 4, .rows = 1, .stride = 0}});
    }
    const auto service = MakeService();
    std::atomic<std::size_t> yielded{0};
    const auto walk = [&](std::span<const std::string>) {
      return std::make_unique<WatchedWalk>(weights.Stream(), [&](std::size_t before) { yielded = before; });
    };
    service->Offer(std::make_shared<OfferedVersion>(Manifest::OfSpecs("run", 7, weights.ToManifest().specs()), walk,
                                                    /*layer_order=*/false));
    // The source is asked for one more than lie in the window.
    CountsWhenFull sink(yielded, std::min<std::size_t>(tensors, kMostSlots));
    ChannelChooser channels;  // which watches the processes of the publishers that it has seen
    FetchOptions options;
    options.channels = &channels;
    options.channel = GetParam();
    FetchSession::Open(std::vector{service->endpoint()}, {"engine", 1, 0, 1}, "", std::nullopt, options,
                       receiver_failpoints_, Soon())
        ->Fetch(schedule, {}, sink, Soon());
    EXPECT_EQ(sink.tensors, tensors);
    return sink.descriptors;
  }
};

TEST_P(DescriptorsTest, OfAStreamDoNotGrowWithItsTensors) {
  WhileAStreamWaits(10);  // what is opened once in a process is open now
  const std::size_t of_few = WhileAStreamWaits(10);
  EXPECT_EQ(WhileAStreamWaits(1000), of_few);
}

INSTANTIATE_TEST_SUITE_P(Channels, DescriptorsTest, ::testing::ValuesIn(ChannelsHere()));

}  // namespace
}  // namespace layercast::testing
