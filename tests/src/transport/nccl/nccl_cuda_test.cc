// The nccl channel on what it is made for: CUDA's copies, and NCCL itself between two GPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <thread>

#include "layercast/error.h"
#include "src/device/cuda_channel_device.h"
#include "src/transport/nccl/nccl_transport.h"
#include "tests/conformance/published_bytes.h"
#include "tests/src/device/cuda/a_device.h"
#include "tests/support/error_of.h"

// As LAYERCAST_NEEDS_CUDA, where there is a device: scripts/gpu_check repeats what it says.
#define LAYERCAST_NEEDS_NCCL(transport)                                       \
  do {                                                                        \
    const std::string layercast_why = (transport).WhyNotHere();               \
    if (!layercast_why.empty()) GTEST_SKIP() << "no NCCL: " << layercast_why; \
  } while (false)

namespace layercast::nccl_channel {
namespace {

using layercast::testing::ErrorOf;
using test::Fetch;
using test::FetchOne;
using ::testing::HasSubstr;

constexpr std::array<std::size_t, 2> kSizes{70'000'000, 4096};
constexpr std::chrono::seconds kMinute{60};  // NCCL looks at the whole machine first

Deadline InAMinute() { return Deadline::After(kMinute); }

void Await(CopyStream& stream) {
  const std::uint64_t mark = stream.Mark();
  for (const Deadline deadline = InAMinute(); !stream.Reached(mark);) {
    ASSERT_FALSE(deadline.Passed());
    std::this_thread::yield();
  }
}

std::unique_ptr<Transport> OnGpu(int device) {
  return MakeNcclTransport([device] { return OpenNcclParts(device); });
}

TEST(NcclCuda, BytesGoUpAndDownInTheOrderOfAStream) {
  LAYERCAST_NEEDS_CUDA();
  const std::shared_ptr<ChannelDevice> device = MakeCudaChannelDevice(0);
  const auto stream = device->MakeStream();
  const Buffer up(device->pinned_memory(), 1'000'000);
  const Buffer there(device->device_memory(), up.size());
  const Buffer down(device->pinned_memory(), up.size());
  for (std::size_t i = 0; i < up.size(); ++i) up.data()[i] = test::PatternByte(0, 0, i);
  std::memset(down.data(), 0, down.size());
  stream->Copy(there.data(), up.data(), up.size());
  stream->Copy(down.data(), there.data(), down.size());
  Await(*stream);
  EXPECT_EQ(std::memcmp(up.data(), down.data(), up.size()), 0);
}

TEST(NcclCuda, KnowsWhatTheDeviceReachesAndWhichItIs) {
  LAYERCAST_NEEDS_CUDA();
  const std::shared_ptr<ChannelDevice> device = MakeCudaChannelDevice(0);
  const Buffer there(device->device_memory(), 100);
  const Buffer pinned(device->pinned_memory(), 100);
  const std::vector<std::byte> pageable(100);
  EXPECT_TRUE(device->Reaches(there.data()));
  EXPECT_TRUE(device->Reaches(pinned.data()));
  EXPECT_FALSE(device->Reaches(pageable.data()));
  EXPECT_NE(device->uuid(), DeviceUuid{});
  EXPECT_EQ(device->uuid(), MakeCudaChannelDevice(0)->uuid());
}

TEST(NcclCuda, OneGpuForBothEndsIsRefused) {
  LAYERCAST_NEEDS_CUDA();
  const auto transport = OnGpu(0);
  LAYERCAST_NEEDS_NCCL(*transport);
  const auto publisher = transport->Offering({});
  EXPECT_THAT(ErrorOf([&] { transport->Connect(publisher->address(), InAMinute()); }, ErrorCode::kUnsupported),
              HasSubstr("publisher and receiver are both on GPU-"));
}

// A publisher on GPU 0, receivers on GPU 1.
class NcclBetweenGpus : public ::testing::Test {
 protected:
  void SetUp() override {
    LAYERCAST_NEEDS_CUDA();
    if (ProbeCuda().devices < 2) GTEST_SKIP() << "one GPU: NCCL takes one end for each";
    there_ = OnGpu(0);
    LAYERCAST_NEEDS_NCCL(*there_);
    here_ = OnGpu(1);
    publisher_ = there_->Offering({});
  }
  std::unique_ptr<FetchingEnd> Connect() { return here_->Connect(publisher_->address(), InAMinute()); }

  std::unique_ptr<Transport> there_;
  std::unique_ptr<Transport> here_;
  std::unique_ptr<OfferingEnd> publisher_;
};

TEST_F(NcclBetweenGpus, BringsWhatIsAskedFor) {
  const test::PublishedBytes published(*publisher_, 1, kSizes);
  const auto receiver = Connect();
  for (int round = 0; round < 10; ++round) {
    Fetch contiguous({{0, 1, 29'999'999, 1, 29'999'999}});
    EXPECT_TRUE(contiguous.IsRight(FetchOne(*receiver, 1, contiguous)));
    Fetch strided({{1, 7, 11, 100, 40}, {0, 5, 1000, 20'000, 1400}, {1, 0, 0, 1, 0}});
    EXPECT_TRUE(strided.IsRight(FetchOne(*receiver, 1, strided)));
  }
}

TEST_F(NcclBetweenGpus, BringsBytesToDeviceMemory) {
  const test::PublishedBytes published(*publisher_, 1, kSizes);
  const std::shared_ptr<ChannelDevice> device = MakeCudaChannelDevice(1);
  const std::vector<Region> regions = {{0, 3, 20'000'000, 1, 20'000'000}, {1, 0, 4096, 1, 4096}};
  const std::vector<std::byte> expected = test::ExpectedBytes(regions);
  const Buffer destination(device->device_memory(), expected.size());
  const auto receiver = Connect();
  receiver->Submit({1, 1, regions, destination.span()});
  ASSERT_TRUE(receiver->Poll(InAMinute()));
  const Buffer down(device->pinned_memory(), expected.size());
  const auto stream = device->MakeStream();
  stream->Copy(down.data(), destination.data(), down.size());
  Await(*stream);
  EXPECT_EQ(std::memcmp(down.data(), expected.data(), expected.size()), 0);
}

TEST_F(NcclBetweenGpus, ReceiversThatVanishCostNobodyElseAnything) {
  const test::PublishedBytes published(*publisher_, 1, kSizes);
  for (int round = 0; round < 3; ++round) {
    const auto vanishing = Connect();
    Fetch fetch({{0, 1, 29'999'999, 1, 29'999'999}});
    fetch.Submit(*vanishing, 1, 1);
    vanishing->Poll(Deadline::After(std::chrono::milliseconds(0)));
    vanishing->Close();
  }
  const auto receiver = Connect();
  Fetch fetch({{1, 0, 4096, 1, 4096}});
  EXPECT_TRUE(fetch.IsRight(FetchOne(*receiver, 1, fetch)));
}

TEST_F(NcclBetweenGpus, APublisherThatVanishesIsUnavailable) {
  const auto receiver = Connect();
  std::vector<std::byte> destination(29'999'999);
  const std::vector<Region> regions = {{0, 1, destination.size(), 1, destination.size()}};
  {
    const test::PublishedBytes published(*publisher_, 1, kSizes);
    receiver->Submit({1, 1, regions, destination});
    receiver->Poll(Deadline::After(std::chrono::milliseconds(0)));
  }
  publisher_.reset();
  EXPECT_THROW(
      {
        while (true) receiver->Poll(InAMinute());
      },
      Error);
}

}  // namespace
}  // namespace layercast::nccl_channel
