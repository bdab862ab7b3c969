// The arena that cuda_ipc copies versions into: by itself, then as publisher and receivers use it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "layercast/error.h"
#include "src/transport/cuda_ipc/copy_in.h"
#include "src/transport/cuda_ipc/offers.h"
#include "src/transport/cuda_ipc/segments/cuda_ipc_arena.h"
#include "tests/src/transport/cuda_ipc/cuda_ipc_fixture.h"
#include "tests/support/error_of.h"

namespace layercast::cuda_ipc_channel {
namespace {

using layercast::testing::ErrorOf;
using ::testing::HasSubstr;

TEST(CudaIpcArena, ServesFreedRangesAgainAndJoinsThem) {
  const auto device = std::make_shared<test::FakeChannelDevice>();
  test::FakeIpc driver(device);
  Arena arena(driver);
  const std::array<std::size_t, 4> sizes{1'000'000, 1, 0, 700'000};
  std::byte* first = nullptr;
  {
    const std::vector<Block> blocks = arena.Allocate(sizes);
    first = blocks[0].data();
    EXPECT_EQ(blocks[2].data(), nullptr);
    EXPECT_GE(blocks[1].data(), first + 1'000'000);
    EXPECT_GE(blocks[3].data(), blocks[1].data() + 1);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(blocks[3].data()) % 256, 0U);
    EXPECT_EQ(arena.segments(), 1U);
  }
  const std::array<std::size_t, 1> whole{1'900'000};
  const std::vector<Block> block = arena.Allocate(whole);
  EXPECT_EQ(block[0].data(), first);
  EXPECT_EQ(arena.segments(), 1U);
}

// Stops the stream in which it is recorded, and counts how often that was asked whether it goes on.
class StoppingEvent final : public IpcEvent {
 public:
  struct Switch {
    std::atomic<bool> stops{true};
    std::atomic<int> asked{0};
  };
  explicit StoppingEvent(Switch& lever) : lever_(lever) {}
  IpcHandle handle() const override { return {}; }
  void Record(CopyStream& stream) override {
    test::FakeStream::Of(stream.handle()).Queue([&lever = lever_] {
      ++lever.asked;
      return !lever.stops;
    });
  }
  bool Reached() override { return true; }

 private:
  Switch& lever_;
};

// Its events are StoppingEvents.
class StoppingDriver final : public IpcDriver {
 public:
  StoppingDriver(IpcDriver& driver, StoppingEvent::Switch& lever) : driver_(driver), lever_(lever) {}
  bool opens_its_own() const override { return driver_.opens_its_own(); }
  std::unique_ptr<OwnSegment> MakeSegment(std::size_t bytes) override { return driver_.MakeSegment(bytes); }
  std::unique_ptr<const MappedSegment> Map(SegmentKey key, std::size_t bytes) override {
    return driver_.Map(std::move(key), bytes);
  }
  std::unique_ptr<IpcEvent> MakeEvent() override { return std::make_unique<StoppingEvent>(lever_); }
  std::unique_ptr<IpcEvent> OpenEvent(const IpcHandle& handle) override { return driver_.OpenEvent(handle); }

 private:
  IpcDriver& driver_;
  StoppingEvent::Switch& lever_;
};

// What is offered is freed after that, and its place in the arena is used again.
TEST(CudaIpcOffers, RemoveWaitsForADeviceThatIsSlowerThanItsPatience) {
  constexpr std::chrono::milliseconds kPatience{1};  // and whoever waits asks every 50 microseconds
  constexpr int kQuestionsBeyondIt = 200;
  const auto device = std::make_shared<test::FakeChannelDevice>();
  test::FakeIpc fake(device);
  StoppingEvent::Switch lever;
  StoppingDriver driver(fake, lever);
  Arena arena(driver);
  CopyIn copy_in(driver, *device, kPatience);
  Offers offers(arena, copy_in);
  const Buffer tensor(device->device_memory(), 4096);
  offers.Add({7, {{tensor.data(), tensor.size()}}});
  ::testing::internal::CaptureStderr();
  std::atomic<bool> removed{false};
  std::jthread removing([&] {
    offers.Remove(7);
    removed = true;
  });
  EXPECT_TRUE(Becomes([&] { return removed || lever.asked > kQuestionsBeyondIt; }));
  EXPECT_FALSE(removed);
  lever.stops = false;
  removing.join();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("offer 7: the device has not copied it in"));
}

TEST(CudaIpcArena, KeepsLegacySegmentsWhichReceiversMayHaveMapped) {
  const auto device = std::make_shared<test::FakeChannelDevice>();
  test::FakeIpc driver(device);
  for (const bool vmm : {true, false}) {
    driver.has_vmm = vmm;
    Arena arena(driver);
    const std::array<std::size_t, 1> small{1'000'000};
    const std::array<std::size_t, 1> large{9'000'000};
    static_cast<void>(arena.Allocate(small));
    static_cast<void>(arena.Allocate(large));
    EXPECT_EQ(arena.segments(), vmm ? 1U : 2U);
  }
}

TEST_F(CudaIpc, TheArenaServesEveryVersionAndStaysMapped) {
  Publish();
  const std::size_t before = there_.driver->bytes_left;
  std::size_t used = 0;
  for (std::uint64_t round = 0; round < 20; ++round) {
    // A connection for each. It is welcomed after the DONE of the one before was taken, which lets that version go.
    const auto receiver = Connect();
    const test::PublishedBytes version(*publisher_, round, kSizes, round);
    if (round == 0) used = before - there_.driver->bytes_left;
    EXPECT_EQ(before - there_.driver->bytes_left, used);
    ExpectBytes(*receiver, round, round);
  }
  EXPECT_EQ(here_.driver->mapped, 1);
}

TEST_F(CudaIpc, SegmentsThatNoLongerFitGoAtBothEnds) {
  Publish();
  const std::size_t before = there_.driver->bytes_left;
  const auto receiver = Connect();
  for (std::size_t size = 1'000'000; size < 20'000'000; size += 3'000'000) {
    const std::array<std::size_t, 2> sizes{size, 4096};
    const test::PublishedBytes version(*publisher_, 1, sizes);
    Fetch fetch({{0, 0, 1'000'000, 1, 1'000'000}});
    EXPECT_TRUE(fetch.IsRight(FetchOne(*receiver, 1, fetch)));
    EXPECT_LE(here_.driver->live_mappings, 2);
  }
  const std::array<std::size_t, 1> large{30'000'000};
  const test::PublishedBytes version(*publisher_, 2, large);
  // This one and the one before, which may not have been let go of yet.
  EXPECT_LE(before - there_.driver->bytes_left, 30'000'000U + 20'000'000U + (8U << 20));
}

TEST_F(CudaIpc, OutOfDeviceMemoryIsSaidAndCostsNothing) {
  Publish();
  const test::PublishedBytes published(*publisher_, 1, kSizes);
  there_.driver->bytes_left = 1'000'000;
  Bytes large(50'000'000);
  const Offer offer{2, {{large.data(), large.size()}}};
  EXPECT_THAT(ErrorOf([&] { publisher_->Add(offer); }, ErrorCode::kResourceExhausted), HasSubstr("out of memory"));
  ExpectServing(1);
  there_.driver->bytes_left = std::size_t{1} << 40;
  publisher_->Add(offer);
  publisher_->Remove(2);
}

}  // namespace
}  // namespace layercast::cuda_ipc_channel
