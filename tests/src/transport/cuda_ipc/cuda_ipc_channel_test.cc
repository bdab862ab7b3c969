// The cuda_ipc channel beside the conformance suite: waits between devices, what CUDA may not have, and what is done
// then. Over the fakes of CUDA's driver and of a device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include "layercast/error.h"
#include "src/device/cuda/cuda_probe.h"
#include "src/transport/all/transports.h"
#include "tests/src/transport/cuda_ipc/cuda_ipc_fixture.h"
#include "tests/support/child_process.h"
#include "tests/support/error_of.h"
#include "tests/support/transport/own_device.h"

namespace layercast::cuda_ipc_channel {
namespace {

using layercast::testing::ErrorOf;
using ::testing::HasSubstr;

constexpr std::chrono::milliseconds kNow{0};

TEST_F(CudaIpc, NothingIsCopiedBeforeThePublishersDeviceHasCopiedIn) {
  Publish();
  there_.device->held = true;
  const test::PublishedBytes published(*publisher_, 1, kSizes);
  const auto receiver = Connect();
  Fetch fetch({{0, 1, 4'999'999, 1, 4'999'999}});
  fetch.Submit(*receiver, 1, 1);
  ASSERT_TRUE(Becomes([&] {
    EXPECT_FALSE(receiver->Poll(Deadline::After(kNow)));
    return here_.driver->asked > 0;
  }));
  EXPECT_EQ(here_.driver->mapped, 1);  // it was granted, and nothing but the event keeps it
  EXPECT_FALSE(receiver->Poll(Deadline::After(std::chrono::milliseconds(50))));
  there_.device->held = false;
  const auto completion = receiver->Poll(InPatience());
  ASSERT_TRUE(completion);
  EXPECT_TRUE(fetch.IsRight(*completion));
}

// What a device waits for in its stream, whoever closes the stream waits for, too: here for ever.
TEST_F(CudaIpc, IsClosedAtOnceThoughThePublishersDeviceNeverCopiesIn) {
  Publish();
  there_.device->held = true;
  const test::PublishedBytes published(*publisher_, 1, kSizes);
  const auto receiver = Connect();
  Fetch fetch({{0, 1, 4'999'999, 1, 4'999'999}});
  fetch.Submit(*receiver, 1, 1);
  ASSERT_TRUE(Becomes([&] {
    EXPECT_FALSE(receiver->Poll(Deadline::After(kNow)));
    return here_.driver->asked > 0;
  }));
  receiver->Close();
  there_.device->held = false;
}

TEST_F(CudaIpc, APublisherWhoseDeviceNeverCopiesInIsGivenUp) {
  Publish();
  there_.device->held = true;
  const test::PublishedBytes published(*publisher_, 1, kSizes);
  const auto receiver = Connect();
  Fetch fetch({{1, 0, 10, 1, 10}});
  fetch.Submit(*receiver, 1, 1);
  EXPECT_THAT(ErrorOf([&] { receiver->Poll(InPatience()); }, ErrorCode::kUnavailable),
              HasSubstr("the device has copied nothing for ten seconds"));
  there_.device->held = false;
}

TEST_F(CudaIpc, WithoutEventsItIsGrantedOnceItIsCopiedIn) {
  here_.driver->opens_events = false;
  Publish();
  there_.device->held = true;
  const test::PublishedBytes published(*publisher_, 1, kSizes);
  const auto receiver = Connect();
  Fetch fetch({{0, 1, 4'999'999, 1, 4'999'999}});
  fetch.Submit(*receiver, 1, 1);
  EXPECT_FALSE(receiver->Poll(Deadline::After(std::chrono::milliseconds(50))));
  EXPECT_EQ(here_.driver->mapped, 0);
  there_.device->held = false;
  const auto completion = receiver->Poll(InPatience());
  ASSERT_TRUE(completion);
  EXPECT_TRUE(fetch.IsRight(*completion));
}

TEST_F(CudaIpc, WhatWaitsForTheDeviceIsRefusedWhenTheOfferGoes) {
  here_.driver->opens_events = false;
  Publish();
  there_.device->held = true;
  test::PublishedBytes published(*publisher_, 1, kSizes);
  const auto receiver = Connect();
  Fetch fetch({{1, 0, 10, 1, 10}});
  fetch.Submit(*receiver, 1, 1);
  static_cast<void>(Connect());  // before the publisher welcomes another, it has taken what this one asked for
  EXPECT_FALSE(receiver->Poll(Deadline::After(kNow)));
  std::jthread withdrawing([&] { published.Withdraw(); });  // waits for the device
  EXPECT_THAT(ErrorOf([&] { receiver->Poll(InPatience()); }, ErrorCode::kNotFound), HasSubstr("the offer was removed"));
  there_.device->held = false;
}

TEST_F(CudaIpc, TakesBytesFromDeviceMemoryAndBringsThemThere) {
  Publish();
  Buffer on_device(there_.device->device_memory(), 3'000'000);
  Buffer pinned(there_.device->pinned_memory(), 100'000);
  Bytes pageable(20'000'000);  // more than is copied up at once
  Offer offer{2, {}};
  std::uint64_t tensor = 0;
  for (const std::span<std::byte> bytes : {on_device.span(), pinned.span(), std::span(pageable)}) {
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = test::PatternByte(0, tensor, i);
    offer.tensors.push_back({bytes.data(), bytes.size()});
    ++tensor;
  }
  publisher_->Add(offer);
  // Whole runs, rows, rows that touch, and a column.
  const std::vector<Region> regions = {
      {2, 7, 19'000'000, 1, 19'000'000}, {0, 3, 2'000'000, 1, 2'000'000}, {2, 0, 10, 90, 1000},
      {1, 1, 99'999, 1, 99'999},         {0, 0, 700, 300, 700},           {1, 5, 3, 1000, 99}};
  const Bytes expected = test::ExpectedBytes(regions);
  Buffer destination(here_.device->device_memory(), expected.size());
  const auto receiver = Connect();
  receiver->Submit({1, 2, regions, destination.span()});
  ASSERT_TRUE(receiver->Poll(InPatience()));
  EXPECT_EQ(std::memcmp(destination.data(), expected.data(), expected.size()), 0);
  Fetch to_host(regions);
  EXPECT_TRUE(to_host.IsRight(FetchOne(*receiver, 2, to_host)));
  publisher_->Remove(2);
}

TEST_F(CudaIpc, ReadsAndWritesTheMemoryOfItsOwnDeviceAlone) {
  Publish();
  const auto receiver = Connect();
  test::ExpectReachesItsOwnDeviceAlone(*publisher_, *receiver);
}

TEST_F(CudaIpc, TheOffersMemoryIsNotReadAfterRemoveThoughReceiversGoOn) {
  Publish();
  test::PublishedBytes published(*publisher_, 1, kSizes);
  const auto receiver = Connect();
  here_.device->held = true;
  Fetch fetch({{0, 0, 5'000'000, 1, 5'000'000}});
  fetch.Submit(*receiver, 1, 1);
  ASSERT_TRUE(Becomes([&] {
    receiver->Poll(Deadline::After(kNow));
    return here_.driver->mapped == 1;
  }));
  published.Withdraw();  // does not wait for it
  published.Overwrite(std::byte{0xEE});
  // Nor does the next version go where it still reads.
  const test::PublishedBytes next(*publisher_, 2, kSizes, 9);
  here_.device->held = false;
  const auto completion = receiver->Poll(InPatience());
  ASSERT_TRUE(completion);
  EXPECT_TRUE(fetch.IsRight(*completion));
  ExpectServing(2, 9);
}

TEST_F(CudaIpc, AReceiverThatDoesNotLetGoLosesItsConnectionAndNothingElseHappens) {
  Publish();
  test::PublishedBytes published(*publisher_, 1, kSizes);
  const auto holding = Connect();
  here_.device->held = true;
  Fetch fetch({{0, 0, 5'000'000, 1, 5'000'000}});
  fetch.Submit(*holding, 1, 1);
  ASSERT_TRUE(Becomes([&] {
    holding->Poll(Deadline::After(kNow));
    return here_.driver->mapped == 1;
  }));
  published.Withdraw();
  EXPECT_THAT(ErrorOf([&] { holding->Poll(InPatience()); }, ErrorCode::kUnavailable), HasSubstr("connection was lost"));
  here_.device->held = false;
  holding->Close();
  const test::PublishedBytes next(*publisher_, 2, kSizes, 9);
  ExpectServing(2, 9);
}

TEST_F(CudaIpc, WithoutAnySharingAnOfferIsUnsupported) {
  there_.driver->has_vmm = there_.driver->has_legacy = false;
  Publish();
  const Bytes bytes(100);
  EXPECT_THAT(ErrorOf([&] { publisher_->Add({1, {{bytes.data(), bytes.size()}}}); }, ErrorCode::kUnsupported),
              HasSubstr("cannot be shared here"));
}

TEST_F(CudaIpc, SaysByWhichHandlesItGoes) {
  Publish();
  const test::PublishedBytes published(*publisher_, 1, kSizes);
  const auto receiver = Connect();
  Fetch fetch({{1, 0, 10, 1, 10}});
  FetchOne(*receiver, 1, fetch);
  EXPECT_EQ(receiver->lane(), "VMM");
}

TEST_F(CudaIpc, FallsBackToLegacyHandles) {
  there_.driver->has_vmm = false;
  Publish();
  const test::PublishedBytes published(*publisher_, 1, kSizes);
  const auto receiver = Connect();
  Fetch fetch({{0, 1, 4'999'999, 1, 4'999'999}});
  EXPECT_TRUE(fetch.IsRight(FetchOne(*receiver, 1, fetch)));
  EXPECT_EQ(receiver->lane(), "legacy IPC");
}

// As CUDA has it: what a process made by other ways than VMM, only another may open.
TEST_F(CudaIpc, WithinOneProcessVmmDoesWithoutEvents) {
  there_.driver->strict = here_.driver->strict = true;
  Publish();
  const test::PublishedBytes published(*publisher_, 1, kSizes);
  ExpectServing(1);
}

TEST_F(CudaIpc, WithinOneProcessLegacyHandlesAreRefused) {
  there_.driver->strict = here_.driver->strict = true;
  there_.driver->has_vmm = false;
  Publish();
  const test::PublishedBytes published(*publisher_, 1, kSizes);
  const auto receiver = Connect();
  Fetch fetch({{1, 0, 10, 1, 10}});
  EXPECT_THAT(ErrorOf([&] { FetchOne(*receiver, 1, fetch); }, ErrorCode::kUnsupported),
              HasSubstr("only in another process"));
}

TEST_F(CudaIpc, BetweenProcessesBothKindsOfHandlesAndEventsAreOpened) {
  here_.driver->strict = true;
  for (const std::string_view kind : {test::kFakeCudaIpc, test::kFakeLegacyCudaIpc}) {
    test::ChildProcess publisher({test::FolderOfThisProgram() + "/conformance_peer", "offer", std::string(kind)});
    const auto receiver = here_.transport->Connect(publisher.ReadLine(), InPatience());
    Fetch fetch({{0, 1, 2'900'000, 1, 2'900'000}, {1, 7, 11, 100, 40}});
    EXPECT_TRUE(fetch.IsRight(FetchOne(*receiver, 7, fetch)));
    EXPECT_EQ(receiver->lane(), kind == test::kFakeCudaIpc ? "VMM" : "legacy IPC");
  }
}

TEST_F(CudaIpc, WhatAnIdleReceiverKeepsMappedGoesWhenThePublisherDies) {
  test::ChildProcess publisher(
      {test::FolderOfThisProgram() + "/conformance_peer", "offer", std::string(test::kFakeCudaIpc)});
  const std::string address = publisher.ReadLine();
  for (int version = 0; version < 3; ++version) {
    const auto receiver = here_.transport->Connect(address, InPatience());
    Fetch fetch({{0, 1, 2'900'000, 1, 2'900'000}});
    EXPECT_TRUE(fetch.IsRight(FetchOne(*receiver, 7, fetch)));
  }
  EXPECT_EQ(here_.driver->live_mappings, 1);
  EXPECT_EQ(here_.driver->mapped, 1);  // across versions
  publisher.Signal(SIGKILL);           // and it is not reaped
  EXPECT_TRUE(Becomes([&] { return here_.driver->live_mappings == 0; }));
}

TEST_F(CudaIpc, TheSegmentsOfAllPublishersOfASessionStayMapped) {
  const std::array<std::unique_ptr<OfferingEnd>, 2> publishers = {there_.transport->Offering({}),
                                                                  there_.transport->Offering({})};
  const test::PublishedBytes one(*publishers[0], 1, kSizes);
  const test::PublishedBytes other(*publishers[1], 1, kSizes);
  for (int session = 0; session < 3; ++session) {
    std::vector<std::unique_ptr<FetchingEnd>> ends;
    for (const auto& publisher : publishers)
      ends.push_back(here_.transport->Connect(publisher->address(), InPatience()));
    for (const auto& end : ends) {
      Fetch fetch({{1, 0, 4096, 1, 4096}});
      EXPECT_TRUE(fetch.IsRight(FetchOne(*end, 1, fetch)));
    }
  }
  EXPECT_EQ(here_.driver->mapped, 2);
}

TEST_F(CudaIpc, OtherHostsAndUsersAreOutOfReach) {
  const HostIdentity mine = HostIdentity::Mine();
  const auto why_not = [&](const HostIdentity& theirs) { return here_.transport->WhyNotBetween(mine, theirs); };
  EXPECT_EQ(why_not(mine), "");
  HostIdentity theirs = mine;
  theirs.user = "another";
  EXPECT_EQ(why_not(theirs), "run by another user");
  theirs = mine;
  theirs.network = "net:[1]";
  EXPECT_EQ(why_not(theirs), "in another network namespace");
  theirs = mine;
  theirs.boot_id = "another";
  EXPECT_EQ(why_not(theirs), "not on the same host");
}

// What may be missing of CUDA.

TEST(CudaIpcTransport, SaysWhatIsMissingHere) {
  const auto transport = MakeCudaIpcTransport(
      []() -> CudaIpcParts { throw Error(ErrorCode::kUnsupported, "no CUDA device is here: the driver sleeps"); });
  const std::string reason = transport->WhyNotBetween(HostIdentity::Mine(), HostIdentity::Mine());
  EXPECT_EQ(reason, "no CUDA device is here: the driver sleeps");
  EXPECT_EQ(transport->WhyNotHere(), reason);
  EXPECT_EQ(ErrorOf([&] { transport->Offering({}); }, ErrorCode::kUnsupported), reason);
}

TEST(CudaIpcTransport, IsOfferedAndChosenByNameAlone) {
  for (const auto& transport : TransportsNamed({})) EXPECT_NE(transport->name(), "cuda_ipc");
  const PlayedGpu gpu;
  EXPECT_FALSE(gpu.transport->ByDefault(HostIdentity::Mine(), HostIdentity::Mine()));
  if (ProbeCuda()) GTEST_SKIP() << "there is a CUDA device";
  EXPECT_THAT(ErrorOf([] { TransportsNamed(std::vector<std::string>{"zmq", "cuda_ipc"}); }, ErrorCode::kUnsupported),
              HasSubstr("channel 'cuda_ipc' cannot be used here: no CUDA device is here: "));
}

// CUDA_VISIBLE_DEVICES, say: the publisher has done nothing wrong, so a session goes on by another channel.
TEST_F(CudaIpc, WhatThisProcessCannotOpenIsUnsupportedHere) {
  Publish();
  const test::PublishedBytes published(*publisher_, 1, kSizes);
  here_.driver->opens_segments = false;
  const auto receiver = Connect();
  Fetch fetch({{0, 0, 4096, 1, 4096}});
  EXPECT_THAT(ErrorOf([&] { FetchOne(*receiver, 1, fetch); }, ErrorCode::kUnsupported),
              HasSubstr("cuMemImportFromShareableHandle"));
}

}  // namespace
}  // namespace layercast::cuda_ipc_channel
