// Peers of the cuda_ipc channel that break its protocol: receivers, then publishers.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "layercast/error.h"
#include "src/net/control_socket.h"
#include "src/net/local_socket.h"
#include "src/transport/cuda_ipc/cuda_ipc_messages.h"
#include "src/transport/shm/memfd.h"
#include "tests/src/transport/cuda_ipc/cuda_ipc_fixture.h"
#include "tests/support/error_of.h"

namespace layercast::cuda_ipc_channel {
namespace {

using layercast::testing::ErrorOf;
using ::testing::HasSubstr;

// Hostile receivers.

class CudaIpcPublisher : public CudaIpc {
 protected:
  CudaIpcPublisher() { Publish(); }
  ControlSocket ConnectRaw() const {
    return ControlSocket(
        ConnectLocally(SOCK_STREAM, WithoutKey(publisher_->address()).substr(kAddressPrefix.size()), InPatience()));
  }
  Hello RightHello() const { return {kVersion, KeyOf(publisher_->address()), true}; }
  ControlSocket ConnectGreeted() const {
    ControlSocket socket = ConnectRaw();
    socket.Send(Encode(RightHello()));
    const auto welcome = NextMessage(socket);
    EXPECT_TRUE(welcome && Decode<Welcome>(*welcome).event);
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
  Bytes wrong_magic = Encode(RightHello());
  wrong_magic[1] = std::byte{'X'};
  for (const Bytes& message :
       {Bytes{}, Bytes{std::byte{77}}, Encode(Bare{Kind::kPing}), wrong_magic, Encode(Hello{0, RightHello().key, true}),
        Encode(Done{1}), Encode(Request{1, 1, {}}), Encode(Welcome{})}) {
    ControlSocket socket = ConnectRaw();
    socket.Send(message);
    ExpectCut(socket);
  }
}

TEST_F(CudaIpcPublisher, CutsWhoeverHasNoKeyOrOneThatIsUsedUp) {
  Hello used_up = RightHello();
  for (int i = 0; i < Invitations::kConnections; ++i) {
    ControlSocket socket = ConnectRaw();
    socket.Send(Encode(used_up));
    ASSERT_TRUE(Decode<Welcome>(*NextMessage(socket)).event);
  }
  for (const Hello& hello : {used_up, Hello{kVersion, RandomToken(), true}, Hello{kVersion, {}, true}}) {
    ControlSocket socket = ConnectRaw();
    socket.Send(Encode(hello));
    ExpectCut(socket);
  }
}

TEST_F(CudaIpcPublisher, CutsTheConnectionsOfASessionThatHasEnded) {
  const std::string address = publisher_->address();
  const Hello hello{kVersion, KeyOf(address), true};
  ControlSocket socket = ConnectRaw();
  socket.Send(Encode(hello));
  ASSERT_TRUE(Decode<Welcome>(*NextMessage(socket)).event);
  publisher_->TakeBack(address);
  ExpectCut(socket);
  ControlSocket again = ConnectRaw();
  again.Send(Encode(hello));
  ExpectCut(again);
}

TEST_F(CudaIpcPublisher, CutsWhoeverBreaksTheProtocol) {
  for (const Bytes& message : {Bytes{}, Bytes{std::byte{77}}, Encode(RightHello()), Encode(Done{1}),
                               Encode(Granted{1, false, {}}), Bytes(100, std::byte{2})}) {
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
      socket.Send(Encode(Request{twice ? 1 : ticket, 5, none}));
    }
    ExpectCut(socket);
  }
}

TEST_F(CudaIpcPublisher, CutsWhoeverSendsDescriptors) {
  ControlSocket socket = ConnectGreeted();
  for (int i = 0; i < 100; ++i) {
    socket.Send(Encode(Bare{Kind::kPing}), shm_channel::MakeMemfd("unwanted", 4096).fd);
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
      socket.Send(Encode(Welcome{}));
      if (!NextMessage(socket)) return;
      for (Answer& answer : moved) socket.Send(answer.first, std::move(answer.second));
      try {
        while (NextMessage(socket)) {
        }
      } catch (const Error&) {  // it has hung up
      }
    });
    const auto receiver =
        here_.transport->Connect(WithKey(std::string(kAddressPrefix) + name, RandomToken()), InPatience());
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
  WhatBecomesOf(AnswersOf(Plain(Encode(Bare{Kind::kPing}))), ErrorCode::kCorrupt);
  EXPECT_THAT(WhatBecomesOf(AnswersOf(Plain(Encode(Refusal{7, ErrorCode::kNotFound, "gone"}))), ErrorCode::kNotFound),
              HasSubstr("it refused: gone"));
}

TEST_F(CudaIpcReceiver, RefusesDescriptorsThatAreNoSegment) {
  const Bytes segment = Encode(Announced{1, 8192, {}});
  UniqueFd pipe_end;
  {
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    pipe_end = UniqueFd(ends[0]);
    const UniqueFd other(ends[1]);
  }
  WhatBecomesOf(AnswersOf(Answer{segment, std::move(pipe_end)}), ErrorCode::kUnsupported);
  WhatBecomesOf(AnswersOf(Answer{segment, UniqueFd(::memfd_create("shrinks", MFD_CLOEXEC))}), ErrorCode::kUnsupported);
  WhatBecomesOf(AnswersOf(Answer{segment, ASegment(4096)}), ErrorCode::kCorrupt);  // shorter than it says
  EXPECT_THAT(WhatBecomesOf(AnswersOf(Plain(segment)), ErrorCode::kCorrupt), HasSubstr("neither a descriptor"));
  EXPECT_THAT(
      WhatBecomesOf(AnswersOf(Answer{Encode(Announced{1, 8192, IpcHandle{}}), ASegment(8192)}), ErrorCode::kCorrupt),
      HasSubstr("or both"));
  WhatBecomesOf(AnswersOf(Plain(Encode(Announced{1, 8192, IpcHandle{}}))), ErrorCode::kUnavailable);  // of nothing
}

TEST_F(CudaIpcReceiver, RefusesPlacesOutsideTheirSegment) {
  const std::vector<Place> wrong = {{1, 8192 - 999}, {1, 8192}, {1, ~std::uint64_t{0}}, {2, 0}, {0, 0}};
  for (const Place& place : wrong) {
    EXPECT_THAT(WhatBecomesOf(AnswersOf(Answer{Encode(Announced{1, 8192, {}}), ASegment(8192)},
                                        Plain(Encode(Granted{7, false, {place}}))),
                              ErrorCode::kCorrupt),
                HasSubstr("GRANTED"));
  }
}

TEST_F(CudaIpcReceiver, RefusesWhatItDidNotAskFor) {
  const auto becomes = [&](const Granted& granted) {
    return WhatBecomesOf(AnswersOf(Answer{Encode(Announced{1, 8192, {}}), ASegment(8192)}, Plain(Encode(granted))),
                         ErrorCode::kCorrupt);
  };
  EXPECT_THAT(becomes({8, false, {{1, 0}}}), HasSubstr("ticket 8"));
  EXPECT_THAT(becomes({7, false, {}}), HasSubstr("ticket 7"));
  EXPECT_THAT(becomes({7, false, {{1, 0}, {1, 0}}}), HasSubstr("ticket 7"));
  EXPECT_THAT(becomes({7, true, {{1, 0}}}), HasSubstr("ticket 7"));  // for an event that it was not given
  WhatBecomesOf(AnswersOf(Answer{Encode(Announced{1, 8192, {}}), ASegment(8192)},
                          Answer{Encode(Announced{1, 8192, {}}), ASegment(8192)}),
                ErrorCode::kCorrupt);
}

TEST_F(CudaIpcReceiver, TakesNothingFromASegmentThatIsGone) {
  EXPECT_THAT(WhatBecomesOf(AnswersOf(Answer{Encode(Announced{1, 8192, {}}), ASegment(8192)}, Plain(Encode(Gone{1})),
                                      Plain(Encode(Granted{7, false, {{1, 0}}}))),
                            ErrorCode::kCorrupt),
              HasSubstr("a segment that is not there"));
}

}  // namespace
}  // namespace layercast::cuda_ipc_channel
