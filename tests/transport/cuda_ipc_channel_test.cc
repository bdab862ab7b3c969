// The cuda_ipc channel beside the conformance suite: waits between devices, the arena and its mappings, what CUDA may
// not have, and peers that break the protocol. Over the fakes of CUDA's driver and of a device.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "layercast/error.h"
#include "src/cuda/probe.h"
#include "src/transport/control_socket.h"
#include "src/transport/cuda_ipc/arena.h"
#include "src/transport/cuda_ipc/cuda_ipc_transport.h"
#include "src/transport/cuda_ipc/messages.h"
#include "src/transport/cuda_ipc/vmm.h"
#include "src/transport/device/device_tick.h"
#include "src/transport/local_socket.h"
#include "src/transport/shm/memfd.h"
#include "tests/conformance/published_bytes.h"
#include "tests/support/child_process.h"
#include "tests/support/error_of.h"
#include "tests/support/fake_ipc.h"
#include "tests/support/fake_staging.h"

namespace layercast::cuda_ipc_channel {
namespace {

using layercast::testing::ErrorOf;
using test::Fetch;
using test::FetchOne;
using test::kPatience;
using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

constexpr std::array<std::size_t, 2> kSizes{5'000'000, 4096};
constexpr std::chrono::milliseconds kNow{0};

Deadline InPatience() { return Deadline::After(kPatience); }

// One process's CUDA, and the channel over it.
struct PlayedGpu {
  std::shared_ptr<test::FakeStaging> device = std::make_shared<test::FakeStaging>();
  std::shared_ptr<test::FakeIpc> driver = std::make_shared<test::FakeIpc>(device);
  std::unique_ptr<Transport> transport = MakeCudaIpcTransport([this] { return CudaIpcParts{driver, device}; });
};

std::optional<Bytes> NextMessage(ControlSocket& socket) {
  for (const Deadline deadline = InPatience(); !deadline.Passed();) {
    if (auto message = socket.Receive()) return message;
    pollfd item{socket.fd(), POLLIN, 0};
    ::poll(&item, 1, static_cast<int>(deadline.Remaining().count()));
  }
  return std::nullopt;
}

// Waits for `what`, which another thread makes true.
template <typename What>
bool Becomes(const What& what) {
  for (const Deadline deadline = InPatience(); !deadline.Passed(); std::this_thread::yield()) {
    if (what()) return true;
  }
  return false;
}

class CudaIpc : public ::testing::Test {
 protected:
  void Publish() { publisher_ = there_.transport->Offering(""); }
  std::unique_ptr<FetchingEnd> Connect() { return here_.transport->Connect(publisher_->address(), InPatience()); }
  void ExpectServing(std::uint64_t offer_id, std::uint64_t round = 0) {
    const auto receiver = Connect();
    Fetch fetch({{0, 1, 99'999, 1, 99'999}, {1, 3, 7, 100, 40}});
    EXPECT_TRUE(fetch.IsRight(FetchOne(*receiver, offer_id, fetch), round));
  }

  PlayedGpu there_;
  PlayedGpu here_;
  std::unique_ptr<OfferingEnd> publisher_;
};

TEST_F(CudaIpc, AReceiversDeviceWaitsUntilThePublishersHasCopiedIn) {
  Publish();
  there_.device->held = true;
  const test::PublishedBytes published(*publisher_, 1, kSizes);
  const auto receiver = Connect();
  Fetch fetch({{0, 1, 4'999'999, 1, 4'999'999}});
  fetch.Submit(*receiver, 1, 1);
  EXPECT_FALSE(receiver->Poll(Deadline::After(std::chrono::milliseconds(50))));
  EXPECT_EQ(here_.driver->mapped, 1);  // it was granted, and nothing but the event keeps it
  there_.device->held = false;
  const auto completion = receiver->Poll(InPatience());
  ASSERT_TRUE(completion);
  EXPECT_TRUE(fetch.IsRight(*completion));
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
  EXPECT_FALSE(receiver->Poll(Deadline::After(std::chrono::milliseconds(50))));
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

TEST_F(CudaIpc, TheArenaServesEveryVersionAndStaysMapped) {
  Publish();
  const std::size_t before = there_.driver->bytes_left;
  std::size_t used = 0;
  for (std::uint64_t round = 0; round < 20; ++round) {
    const test::PublishedBytes version(*publisher_, round, kSizes, round);
    if (round == 0) used = before - there_.driver->bytes_left;
    // The one before goes when its receiver's DONE has come, which is before this one's request.
    EXPECT_LE(before - there_.driver->bytes_left, 2 * used);
    ExpectServing(round, round);  // a connection for each
  }
  EXPECT_LE(here_.driver->mapped, 2);
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
    test::ChildProcess publisher(
        {test::FolderOfThisProgram() + "/../conformance/conformance_peer", "offer", std::string(kind)});
    const auto receiver = here_.transport->Connect(publisher.ReadLine(), InPatience());
    Fetch fetch({{0, 1, 2'900'000, 1, 2'900'000}, {1, 7, 11, 100, 40}});
    EXPECT_TRUE(fetch.IsRight(FetchOne(*receiver, 7, fetch)));
    EXPECT_EQ(receiver->lane(), kind == test::kFakeCudaIpc ? "VMM" : "legacy IPC");
  }
}

TEST_F(CudaIpc, OtherHostsAndUsersAreNotViable) {
  const HostIdentity mine = HostIdentity::Mine();
  const auto why_not = [&](const HostIdentity& theirs) {
    std::string reason;
    const bool viable = here_.transport->Viable(mine, theirs, reason);
    EXPECT_EQ(viable, reason.empty());
    return reason;
  };
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

// Hostile receivers.

class CudaIpcPublisher : public CudaIpc {
 protected:
  CudaIpcPublisher() { Publish(); }
  ControlSocket ConnectRaw() const {
    return ControlSocket(
        ConnectLocally(SOCK_STREAM, publisher_->address().substr(kAddressPrefix.size()), InPatience()));
  }
  ControlSocket ConnectGreeted() const {
    ControlSocket socket = ConnectRaw();
    socket.Send(EncodeHello({kVersion, true}));
    const auto welcome = NextMessage(socket);
    EXPECT_TRUE(welcome && DecodeWelcome(*welcome).event);
    return socket;
  }
  void ExpectCut(ControlSocket& socket) {
    EXPECT_THAT(ErrorOf(
                    [&] {
                      while (NextMessage(socket)) {
                      }
                    },
                    ErrorCode::kUnavailable),
                HasSubstr("lost"));
    const test::PublishedBytes published(*publisher_, 1, kSizes);
    ExpectServing(1);
  }
};

TEST_F(CudaIpcPublisher, CutsWhoeverDoesNotGreetProperly) {
  Bytes wrong_magic = EncodeHello({kVersion, true});
  wrong_magic[1] = std::byte{'X'};
  for (const Bytes& message : {Bytes{}, Bytes{std::byte{77}}, EncodePing(), wrong_magic, EncodeHello({0, true}),
                               EncodeDone(1), EncodeRequest(1, 1, {}), EncodeWelcome({})}) {
    ControlSocket socket = ConnectRaw();
    socket.Send(message);
    ExpectCut(socket);
  }
}

TEST_F(CudaIpcPublisher, CutsWhoeverBreaksTheProtocol) {
  for (const Bytes& message : {Bytes{}, Bytes{std::byte{77}}, EncodeHello({kVersion, true}), EncodeDone(1),
                               EncodeGranted({1, false, {}}), Bytes(100, std::byte{2})}) {
    ControlSocket socket = ConnectGreeted();
    socket.Send(message);
    ExpectCut(socket);
  }
}

TEST_F(CudaIpcPublisher, CutsWhoeverAsksForTooMuchOrTwice) {
  std::optional<test::PublishedBytes> published;
  published.emplace(*publisher_, 5, kSizes);
  const std::vector<Region> none;
  for (const bool twice : {true, false}) {
    ControlSocket socket = ConnectGreeted();
    for (std::uint64_t ticket = 0; ticket <= kMaxRequestsUnderWay; ++ticket) {
      socket.Send(EncodeRequest(twice ? 1 : ticket, 5, none));
    }
    ExpectCut(socket);
  }
}

TEST_F(CudaIpcPublisher, CutsWhoeverSendsDescriptors) {
  ControlSocket socket = ConnectGreeted();
  for (int i = 0; i < 100; ++i) {
    socket.Send(EncodePing(), shm_channel::MakeMemfd("unwanted", 4096).fd);
  }
  ExpectCut(socket);
}

// Hostile publishers.

// A receiver that has asked for 1000 bytes, and what becomes of it when it gets `answers`, some with a descriptor.
class CudaIpcReceiver : public ::testing::Test {
 protected:
  using Answer = std::pair<Bytes, UniqueFd>;

  std::string WhatBecomesOf(std::vector<Answer> answers, ErrorCode code) {
    std::string name;
    const UniqueFd listener = ListenLocally(SOCK_STREAM, name);
    const std::jthread publisher([&, moved = std::move(answers)]() mutable {
      pollfd item{listener.get(), POLLIN, 0};
      ::poll(&item, 1, static_cast<int>(InPatience().Remaining().count()));
      ControlSocket socket{AcceptLocally(listener)};
      if (!NextMessage(socket)) return;
      socket.Send(EncodeWelcome({}));
      if (!NextMessage(socket)) return;
      for (Answer& answer : moved) socket.Send(answer.first, std::move(answer.second));
      try {
        while (NextMessage(socket)) {
        }
      } catch (const Error&) {  // it has hung up
      }
    });
    const auto receiver = here_.transport->Connect(std::string(kAddressPrefix) + name, InPatience());
    Bytes destination(1000, std::byte{0x5A});
    const std::vector<Region> regions = {{0, 0, 1000, 1, 1000}};
    const std::string words = ErrorOf(
        [&] {
          receiver->Submit({7, 1, regions, destination});
          receiver->Poll(InPatience());
        },
        code);
    receiver->Close();
    EXPECT_TRUE(std::ranges::all_of(destination, [](std::byte byte) { return byte == std::byte{0x5A}; }));
    return words;
  }
  static UniqueFd ASegment(std::size_t bytes) { return shm_channel::MakeMemfd("segment", bytes).fd; }
  static Answer Plain(Bytes message) { return {std::move(message), UniqueFd()}; }
  template <typename... Each>
  static std::vector<Answer> AnswersOf(Each... each) {
    std::vector<Answer> answers;
    (answers.push_back(std::move(each)), ...);
    return answers;
  }

  PlayedGpu here_;
};

TEST_F(CudaIpcReceiver, RefusesMessagesThatNoPublisherSends) {
  WhatBecomesOf(AnswersOf(Plain({})), ErrorCode::kCorrupt);
  WhatBecomesOf(AnswersOf(Plain({std::byte{77}})), ErrorCode::kCorrupt);
  WhatBecomesOf(AnswersOf(Plain(EncodePing())), ErrorCode::kCorrupt);
  EXPECT_THAT(WhatBecomesOf(AnswersOf(Plain(EncodeRefusal({7, ErrorCode::kNotFound, "gone"}))), ErrorCode::kNotFound),
              HasSubstr("it refused: gone"));
}

TEST_F(CudaIpcReceiver, RefusesDescriptorsThatAreNoSegment) {
  const Bytes segment = EncodeSegment({1, 8192, {}});
  UniqueFd pipe_end;
  {
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    pipe_end = UniqueFd(ends[0]);
    const UniqueFd other(ends[1]);
  }
  WhatBecomesOf(AnswersOf(Answer{segment, std::move(pipe_end)}), ErrorCode::kCorrupt);
  WhatBecomesOf(AnswersOf(Answer{segment, UniqueFd(::memfd_create("shrinks", MFD_CLOEXEC))}), ErrorCode::kCorrupt);
  WhatBecomesOf(AnswersOf(Answer{segment, ASegment(4096)}), ErrorCode::kCorrupt);  // shorter than it says
  EXPECT_THAT(WhatBecomesOf(AnswersOf(Plain(segment)), ErrorCode::kCorrupt), HasSubstr("neither a descriptor"));
  EXPECT_THAT(
      WhatBecomesOf(AnswersOf(Answer{EncodeSegment({1, 8192, IpcHandle{}}), ASegment(8192)}), ErrorCode::kCorrupt),
      HasSubstr("or both"));
  WhatBecomesOf(AnswersOf(Plain(EncodeSegment({1, 8192, IpcHandle{}}))), ErrorCode::kUnavailable);  // of nothing
}

TEST_F(CudaIpcReceiver, RefusesPlacesOutsideTheirSegment) {
  const std::vector<Place> wrong = {{1, 8192 - 999}, {1, 8192}, {1, ~std::uint64_t{0}}, {2, 0}, {0, 0}};
  for (const Place& place : wrong) {
    EXPECT_THAT(WhatBecomesOf(AnswersOf(Answer{EncodeSegment({1, 8192, {}}), ASegment(8192)},
                                        Plain(EncodeGranted({7, false, {place}}))),
                              ErrorCode::kCorrupt),
                HasSubstr("GRANTED"));
  }
}

TEST_F(CudaIpcReceiver, RefusesWhatItDidNotAskFor) {
  const auto becomes = [&](const Granted& granted) {
    return WhatBecomesOf(AnswersOf(Answer{EncodeSegment({1, 8192, {}}), ASegment(8192)}, Plain(EncodeGranted(granted))),
                         ErrorCode::kCorrupt);
  };
  EXPECT_THAT(becomes({8, false, {{1, 0}}}), HasSubstr("ticket 8"));
  EXPECT_THAT(becomes({7, false, {}}), HasSubstr("ticket 7"));
  EXPECT_THAT(becomes({7, false, {{1, 0}, {1, 0}}}), HasSubstr("ticket 7"));
  EXPECT_THAT(becomes({7, true, {{1, 0}}}), HasSubstr("ticket 7"));  // for an event that it was not given
  WhatBecomesOf(AnswersOf(Answer{EncodeSegment({1, 8192, {}}), ASegment(8192)},
                          Answer{EncodeSegment({1, 8192, {}}), ASegment(8192)}),
                ErrorCode::kCorrupt);
}

TEST_F(CudaIpcReceiver, TakesNothingFromASegmentThatIsGone) {
  EXPECT_THAT(WhatBecomesOf(AnswersOf(Answer{EncodeSegment({1, 8192, {}}), ASegment(8192)}, Plain(EncodeGone(1)),
                                      Plain(EncodeGranted({7, false, {{1, 0}}}))),
                            ErrorCode::kCorrupt),
              HasSubstr("a segment that is not there"));
}

// The arena by itself.

TEST(CudaIpcArena, ServesFreedRangesAgainAndJoinsThem) {
  const auto device = std::make_shared<test::FakeStaging>();
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

TEST(CudaIpcArena, KeepsLegacySegmentsWhichReceiversMayHaveMapped) {
  const auto device = std::make_shared<test::FakeStaging>();
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

// What may be missing of CUDA.

TEST(CudaIpcTransport, SaysWhatIsMissingHere) {
  const auto transport = MakeCudaIpcTransport(
      []() -> CudaIpcParts { throw Error(ErrorCode::kUnsupported, "no CUDA device is here: the driver sleeps"); });
  std::string reason;
  EXPECT_FALSE(transport->Viable(HostIdentity::Mine(), HostIdentity::Mine(), reason));
  EXPECT_EQ(reason, "no CUDA device is here: the driver sleeps");
  EXPECT_EQ(transport->WhyNotHere(), reason);
  EXPECT_EQ(ErrorOf([&] { transport->Offering("127.0.0.1"); }, ErrorCode::kUnsupported), reason);
}

TEST(CudaIpcTransport, IsOfferedAndChosenByNameAlone) {
  for (const auto& transport : TransportsNamed({})) EXPECT_NE(transport->name(), "cuda_ipc");
  const PlayedGpu gpu;
  EXPECT_FALSE(gpu.transport->ByDefault(HostIdentity::Mine(), HostIdentity::Mine()));
  if (ProbeCuda()) GTEST_SKIP() << "there is a CUDA device";
  EXPECT_THAT(ErrorOf([] { TransportsNamed(std::vector<std::string>{"zmq", "cuda_ipc"}); }, ErrorCode::kUnsupported),
              HasSubstr("channel 'cuda_ipc' cannot be used here: no CUDA device is here: "));
}

TEST(CudaIpcVmm, ADriverThatIsMissingOrTooOldIsNamed) {
  EXPECT_THAT(ErrorOf([] { LoadVmm("/nowhere/libcuda.so.1"); }, ErrorCode::kUnsupported),
              HasSubstr("/nowhere/libcuda.so.1"));
  const std::string old = test::FolderOfThisProgram() + "/libcuda_old.so";
  EXPECT_THAT(ErrorOf([&] { LoadVmm(old); }, ErrorCode::kUnsupported),
              HasSubstr("libcuda_old.so' has no cuMemGetAllocationGranularity"));
}

}  // namespace
}  // namespace layercast::cuda_ipc_channel
