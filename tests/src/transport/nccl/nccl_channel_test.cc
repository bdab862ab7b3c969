// The nccl channel beside the conformance suite: device memory at either end, what NCCL does not allow, and NCCL itself
// failing. Over the fakes of NCCL and of a device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <stop_token>
#include <thread>
#include <vector>

#include "layercast/error.h"
#include "src/device/cuda/cuda_probe.h"
#include "src/transport/all/transports.h"
#include "tests/src/transport/nccl/nccl_fixture.h"
#include "tests/support/transport/own_device.h"

namespace layercast::nccl_channel {
namespace {

using layercast::testing::ErrorOf;
using test::Fetch;
using test::FetchOne;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(NcclChannel, TakesBytesFromDeviceMemoryAndBringsThemThere) {
  Buffer on_device(device_->device_memory(), kSize);
  Buffer pinned(device_->pinned_memory(), 100'000);
  Bytes pageable(100'000);
  Offer offer{2, {}};
  std::uint64_t tensor = 0;
  for (const std::span<std::byte> bytes : {on_device.span(), pinned.span(), std::span(pageable)}) {
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = test::PatternByte(0, tensor, i);
    offer.tensors.push_back({bytes.data(), bytes.size()});
    ++tensor;
  }
  publisher_->Add(offer);
  // Pieces of all three, one after the other, and short rows of each.
  const std::vector<Region> regions = {{2, 7, 50'000, 1, 50'000}, {0, 3, 5'000'000, 1, 5'000'000}, {2, 0, 10, 90, 1000},
                                       {1, 1, 99'999, 1, 99'999}, {0, 0, 700, 300, 30'000},        {1, 5, 3, 1000, 99}};
  const Bytes expected = test::ExpectedBytes(regions);
  Buffer destination(device_->device_memory(), expected.size());
  const auto receiver = Connect();
  receiver->Submit({1, 2, regions, destination.span()});
  ASSERT_TRUE(receiver->Poll(Soon()));
  EXPECT_EQ(std::memcmp(destination.data(), expected.data(), expected.size()), 0);
  Fetch to_host(regions);
  EXPECT_TRUE(to_host.IsRight(FetchOne(*receiver, 2, to_host)));
  publisher_->Remove(2);
}

TEST_F(NcclChannel, RowsOfARegionCostOneCopyAndOneQuestionAtEachEnd) {
  Buffer on_device(device_->device_memory(), kSize);
  publisher_->Add({2, {{on_device.data(), on_device.size()}}});
  const std::vector<Region> regions = {{0, 3, 700, 1000, 3000}};
  Buffer destination(device_->device_memory(), 700'000);
  const auto receiver = Connect();
  const std::uint64_t copies = device_->copies;
  const std::uint64_t questions = device_->questions;
  receiver->Submit({1, 2, regions, destination.span()});
  ASSERT_TRUE(receiver->Poll(Soon()));
  EXPECT_EQ(device_->copies - copies, 2U);
  EXPECT_EQ(device_->questions - questions, 2U);
  publisher_->Remove(2);
}

TEST_F(NcclChannel, ReadsAndWritesTheMemoryOfItsOwnDeviceAlone) {
  const auto receiver = Connect();
  test::ExpectReachesItsOwnDeviceAlone(*publisher_, *receiver);
}

TEST_F(NcclChannel, WhatTheDeviceIsToldToWriteIsThereWhenCloseReturns) {
  Buffer destination(device_->device_memory(), kSize);
  const std::vector<Region> regions = {{0, 0, kSize, 1, kSize}};
  for (int polls = 0; polls < 8; ++polls) {
    const auto receiver = Connect();
    receiver->Submit({1, 1, regions, destination.span()});
    for (int i = 0; i < polls; ++i) receiver->Poll(Deadline::After(std::chrono::milliseconds(0)));
    receiver->Close();
    std::memset(destination.data(), 0x5A, kSize);
    ExpectServing();
    for (const std::byte byte : destination.span()) ASSERT_EQ(byte, std::byte{0x5A});
  }
}

TEST_F(NcclChannel, VersionsThatDifferAreNamed) {
  const auto other = TransportOf({std::make_shared<test::FakeNccl>(NCCL_VERSION(2, 20, 5)), device_});
  EXPECT_THAT(ErrorOf([&] { other->Connect(publisher_->address(), Soon()); }, ErrorCode::kUnsupported),
              AllOf(HasSubstr("nccl: publisher at nccl://127.0.0.1:"), HasSubstr("the publisher's is 2.28.9"),
                    HasSubstr("the receiver's 2.20.5")));
  ExpectServing();
}

TEST_F(NcclChannel, OneGpuForBothEndsIsNamed) {
  const DeviceUuid uuid = RandomToken();
  const auto transport = TransportOf({library_, std::make_shared<test::FakeChannelDevice>(uuid)});
  const auto publisher = transport->Offering({});
  EXPECT_THAT(ErrorOf([&] { transport->Connect(publisher->address(), Soon()); }, ErrorCode::kUnsupported),
              AllOf(HasSubstr("one end for a GPU"), HasSubstr(DeviceText(uuid))));
}

TEST_F(NcclChannel, SaysWhichNcclItGoesBy) { EXPECT_EQ(Connect()->lane(), "NCCL " + VersionText(NCCL_VERSION_CODE)); }

// The deadline passes once both ends have begun to set it up, however long they take to get there.
TEST_F(NcclChannel, ACommunicatorThatIsNeverSetUpEndsAtTheDeadline) {
  library_->never_settle = true;
  std::stop_source stop;
  std::jthread passing([&] {
    for (const Deadline deadline = Soon(); library_->communicators < 2 && !deadline.Passed();) {
      std::this_thread::yield();
    }
    stop.request_stop();
  });
  EXPECT_THAT(ErrorOf([&] { transport_->Connect(publisher_->address(), Soon().OrStop(stop.get_token())); },
                      ErrorCode::kDeadlineExceeded),
              AllOf(HasSubstr("communicator of epoch 1"), HasSubstr("nccl: publisher at")));
  passing.join();
  EXPECT_EQ(library_->communicators, 2);
  library_->never_settle = false;
  ExpectServing();
}

TEST_F(NcclChannel, ALibraryThatFailsCostsTheConnectionAlone) {
  library_->fail_unique_id = true;
  ErrorOf([&] { Connect(); }, ErrorCode::kUnavailable);
  library_->fail_unique_id = false;
  library_->fail_init = true;
  ErrorOf([&] { Connect(); }, ErrorCode::kUnavailable);
  library_->fail_init = false;
  ExpectServing();
}

TEST_F(NcclChannel, AnErrorOfNcclIsUnavailableAndTheNextEpochGoesOn) {
  for (const int groups : {0, 1, 2, 3}) {
    const auto receiver = Connect();
    library_->groups_until_error = groups;
    Fetch fetch({{0, 0, kSize, 1, kSize}});
    const std::string error = ErrorOf(
        [&] {
          for (const Deadline deadline = Soon(); !deadline.Passed();) FetchOne(*receiver, 1, fetch);
        },
        ErrorCode::kUnavailable);
    EXPECT_THAT(error, HasSubstr("nccl: publisher at nccl://127.0.0.1:"));
    ErrorOf([&] { receiver->Poll(Soon()); }, ErrorCode::kUnavailable);
    ExpectServing();
  }
}

TEST(NcclTransport, SaysWhatIsMissingHere) {
  const auto transport = MakeNcclTransport(
      []() -> NcclParts { throw Error(ErrorCode::kUnsupported, "no CUDA device is here: the driver sleeps"); });
  const std::string reason = transport->WhyNotBetween(HostIdentity::Mine(), HostIdentity::Mine());
  EXPECT_EQ(reason, "no CUDA device is here: the driver sleeps");
  EXPECT_EQ(transport->WhyNotHere(), reason);
  EXPECT_EQ(ErrorOf([&] { transport->Offering({}); }, ErrorCode::kUnsupported), reason);
}

TEST(NcclTransport, IsLeftOutWhereThereIsNoDeviceUnlessItIsNamed) {
  if (ProbeCuda()) GTEST_SKIP() << "there is a CUDA device";
  for (const auto& transport : TransportsNamed({})) EXPECT_NE(transport->name(), "nccl");
  EXPECT_THAT(ErrorOf([] { TransportsNamed(std::vector<std::string>{"zmq", "nccl"}); }, ErrorCode::kUnsupported),
              HasSubstr("channel 'nccl' cannot be used here: no CUDA device is here: "));
}

}  // namespace
}  // namespace layercast::nccl_channel
