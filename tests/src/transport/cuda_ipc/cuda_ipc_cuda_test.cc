// The cuda_ipc channel on what it is made for: CUDA's memory and events, within a process and between two. The other
// process is this program, running a test that is disabled otherwise.
#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <cstring>
#include <iostream>
#include <string>

#include "layercast/error.h"
#include "src/device/cuda_channel_device.h"
#include "src/transport/cuda_ipc/cuda_ipc_transport.h"
#include "tests/conformance/published_bytes.h"
#include "tests/src/device/cuda/a_device.h"
#include "tests/support/child_process.h"

namespace layercast::cuda_ipc_channel {
namespace {

using test::ChildProcess;
using test::Fetch;
using test::FetchOne;

constexpr std::array<std::size_t, 2> kSizes{30'000'000, 4096};

Deadline InPatience() { return Deadline::After(test::kPatience); }

std::unique_ptr<Transport> OnGpu(int device) {
  return MakeCudaIpcTransport([device] { return OpenCudaIpcParts(device); });
}

// On device 0, as offers 7 and 8, until its standard input ends.
TEST(CudaIpcCuda, DISABLED_OffersUntilTheEnd) {
  const auto publisher = OnGpu(0)->Offering({});
  const test::PublishedBytes first(*publisher, 7, kSizes);
  const test::PublishedBytes second(*publisher, 8, kSizes, 1);
  std::cout << publisher->address() << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
  }
}

ChildProcess StartPublisher() {
  return ChildProcess({test::FolderOfThisProgram() + "/cuda_ipc_cuda_test", "--gtest_also_run_disabled_tests",
                       "--gtest_filter=CudaIpcCuda.DISABLED_OffersUntilTheEnd"});
}

std::string AddressFrom(ChildProcess& publisher) {
  for (std::string line = publisher.ReadLine();; line = publisher.ReadLine()) {
    if (line.starts_with(kAddressPrefix)) return line;
  }
}

void ExpectBoth(FetchingEnd& receiver) {
  for (int round = 0; round < 10; ++round) {
    Fetch contiguous({{0, 1, 29'999'999, 1, 29'999'999}});
    EXPECT_TRUE(contiguous.IsRight(FetchOne(receiver, 7, contiguous)));
    Fetch strided({{1, 7, 11, 100, 40}, {0, 5, 1000, 20'000, 1400}, {1, 0, 0, 1, 0}, {0, 3, 7, 1000, 99}});
    EXPECT_TRUE(strided.IsRight(FetchOne(receiver, 8, strided), 1));
  }
}

TEST(CudaIpcCuda, BringsWhatIsAskedForWithinAProcess) {
  LAYERCAST_NEEDS_CUDA();
  const auto transport = OnGpu(0);
  const auto publisher = transport->Offering({});
  const test::PublishedBytes first(*publisher, 7, kSizes);
  const test::PublishedBytes second(*publisher, 8, kSizes, 1);
  const auto receiver = transport->Connect(publisher->address(), InPatience());
  ExpectBoth(*receiver);
  EXPECT_EQ(receiver->lane(), "VMM");
}

TEST(CudaIpcCuda, BringsWhatIsAskedForFromAnotherProcess) {
  LAYERCAST_NEEDS_CUDA();
  ChildProcess publisher = StartPublisher();
  const auto receiver = OnGpu(0)->Connect(AddressFrom(publisher), InPatience());
  ExpectBoth(*receiver);
  std::cout << "by " << receiver->lane() << std::endl;
}

TEST(CudaIpcCuda, BringsItToAnotherGpu) {
  LAYERCAST_NEEDS_CUDA();
  if (ProbeCuda().devices < 2) GTEST_SKIP() << "one GPU";
  ChildProcess publisher = StartPublisher();
  const auto receiver = OnGpu(1)->Connect(AddressFrom(publisher), InPatience());
  ExpectBoth(*receiver);
}

TEST(CudaIpcCuda, BringsBytesFromAndToDeviceMemory) {
  LAYERCAST_NEEDS_CUDA();
  const auto transport = OnGpu(0);
  const auto publisher = transport->Offering({});
  const test::PublishedBytes there(*publisher, 1, kSizes);
  const std::shared_ptr<ChannelDevice> device = MakeCudaChannelDevice(0);
  const std::vector<Region> regions = {{0, 3, 20'000'000, 1, 20'000'000}, {1, 0, 10, 100, 40}};
  const std::vector<std::byte> expected = test::ExpectedBytes(regions);
  const Buffer landed(device->device_memory(), expected.size());
  const auto receiver = transport->Connect(publisher->address(), InPatience());
  receiver->Submit({1, 1, regions, landed.span()});
  ASSERT_TRUE(receiver->Poll(InPatience()));
  publisher->Add({2, {{landed.data(), landed.size()}}});  // what lies on the device is offered on
  const std::vector<Region> whole = {{0, 0, landed.size(), 1, landed.size()}};
  std::vector<std::byte> down(landed.size());
  receiver->Submit({2, 2, whole, down});
  ASSERT_TRUE(receiver->Poll(InPatience()));
  EXPECT_EQ(std::memcmp(down.data(), expected.data(), expected.size()), 0);
  publisher->Remove(2);
}

TEST(CudaIpcCuda, AKilledPublisherIsUnavailable) {
  LAYERCAST_NEEDS_CUDA();
  ChildProcess publisher = StartPublisher();
  const auto receiver = OnGpu(0)->Connect(AddressFrom(publisher), InPatience());
  ExpectBoth(*receiver);
  publisher.Signal(SIGKILL);
  Fetch fetch({{0, 0, 1000, 1, 1000}});
  EXPECT_THROW(
      {
        while (true) FetchOne(*receiver, 7, fetch);
      },
      Error);
}

}  // namespace
}  // namespace layercast::cuda_ipc_channel
