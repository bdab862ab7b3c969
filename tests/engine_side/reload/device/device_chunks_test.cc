// Chunks that a channel brings to an engine's device at once: the same bytes are served, whatever comes out of step,
// and host memory sees none of them. Linked with a device that is played, and with a real one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "layercast/publisher.h"
#include "src/base/memory/counting_memory.h"
#include "tests/support/device/device_test.h"
#include "tests/support/reload/device_publishing.h"

namespace layercast {
namespace {

using testing::DeviceRank;
using testing::DeviceRigOptions;
using testing::Differences;
using testing::ErrorOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ServedBytes;

class ChunksToDevice : public testing::DeviceTest {
 protected:
  const testing::Weights& Publish(const testing::RigOptions& model, std::uint64_t step, PublishMode mode) {
    const testing::Weights& weights =
        versions_.emplace_back(testing::RigWeights(model, static_cast<std::uint32_t>(step)));
    publisher_.Publish({.lineage = "run", .step = step, .mode = mode},
                       {.specs = testing::SpecsOf(weights),
                        .walk = [&weights](std::span<const std::string>) { return weights.Stream(); }});
    return weights;
  }

  HostMemory heap_;
  std::deque<testing::Weights> versions_;
  Publisher publisher_{{.channels = {"inproc"}}};
};

TEST_F(ChunksToDevice, AreServedLikeAnyOthers) {
  std::uint64_t step = 0;
  for (const char* recipe : {"none", "fp8_per_tensor", "fp8_per_channel", "fp8_per_block", "nvfp4"}) {
    for (const auto& [rank, ranks] : {std::pair(0, 1), std::pair(1, 2)}) {
      for (const std::uint64_t chunk_bytes : {5000U, 70'000U}) {
        SCOPED_TRACE(std::string(recipe) + ", rank " + std::to_string(rank) + ", chunks of " +
                     std::to_string(chunk_bytes));
        const DeviceRigOptions options{.model = {.recipe = recipe, .parallel = {rank, ranks}},
                                       .chunk_bytes = chunk_bytes};
        CountingMemory host(heap_);
        DeviceRank engine(*device_, options, host);
        for (const PublishMode mode : {PublishMode::kSnapshot, PublishMode::kStream}) {
          if (mode == PublishMode::kStream && ranks != 1) continue;  // all ranks at once
          const testing::Weights& weights = Publish(options.model, ++step, mode);
          engine.Reload(publisher_.endpoint(), step);
          EXPECT_THAT(Differences(engine.Served(), testing::ServedSlowly(options.model, weights)), IsEmpty());
          EXPECT_TRUE(engine.ServesWhatItStaged());
        }
        EXPECT_GT(engine.brought(), 0U);
        EXPECT_EQ(host.allocations(), 0U);
      }
    }
  }
}

// The host reads scales, which come with their codes or for activations and caches: all of a layer's at once.
TEST_F(ChunksToDevice, OfScalesCostNoWaitForATensor) {
  const DeviceRigOptions options{
      .model = {.recipe = "fp8_per_tensor", .layers = 6, .scales = {.inputs = true, .kv_cache = true}},
      .chunk_bytes = 4U << 20};
  DeviceRank engine(*device_, options, heap_);
  const testing::Weights& weights = Publish(options.model, 1, PublishMode::kSnapshot);
  const std::size_t before = device_->waits();
  engine.Reload(publisher_.endpoint(), 1);
  EXPECT_LE(device_->waits() - before, engine.layers() + 8);
  EXPECT_THAT(Differences(engine.Served(), testing::ServedSlowly(options.model, weights)), IsEmpty());
}

TEST_F(ChunksToDevice, TakeNoMemoryAfterTheFirstReload) {
  const DeviceRigOptions options{};
  DeviceRank engine(*device_, options, heap_);
  std::size_t after_first = 0;
  for (std::uint64_t step = 1; step <= 3; ++step) {
    Publish(options.model, step, PublishMode::kSnapshot);
    engine.Reload(publisher_.endpoint(), step);
    if (step == 1) after_first = device_->allocations();
  }
  EXPECT_EQ(device_->allocations(), after_first);
}

TEST_F(ChunksToDevice, OneThatCameWithOtherBytesIsRefused) {
  const DeviceRigOptions options{};
  DeviceRank engine(*device_, options, heap_, "receive.chunk=corrupt@1");
  const ServedBytes before = engine.Served();
  const testing::Weights& weights = Publish(options.model, 1, PublishMode::kSnapshot);
  EXPECT_THAT(ErrorOf([&] { engine.Reload(publisher_.endpoint(), 1); }), HasSubstr("digest expected"));
  engine.stager().Abandon();
  EXPECT_THAT(Differences(engine.Served(), before), IsEmpty());
  engine.Reload(publisher_.endpoint(), 1);
  EXPECT_THAT(Differences(engine.Served(), testing::ServedSlowly(options.model, weights)), IsEmpty());
}

}  // namespace
}  // namespace layercast
