// What the tests of the nccl channel share: a publisher over the fakes of NCCL and of a device, receivers that say what
// a test wants, and waiting.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "src/net/control_socket.h"
#include "src/net/poll_for.h"
#include "src/transport/nccl/nccl_transport.h"
#include "src/transport/nccl/wire/communicator.h"
#include "src/transport/nccl/wire/nccl_messages.h"
#include "tests/conformance/published_bytes.h"
#include "tests/support/error_of.h"
#include "tests/support/fakes/fake_channel_device.h"
#include "tests/support/fakes/fake_nccl.h"

namespace layercast::nccl_channel {

using Bytes = std::vector<std::byte>;

inline Deadline Soon() { return Deadline::After(test::kPatience); }

// Until it holds, or the test has failed.
template <typename Condition>
void AwaitThat(const Condition& condition) {
  for (const Deadline deadline = Soon(); !condition();) {
    if (deadline.Passed()) throw Error(ErrorCode::kDeadlineExceeded, "it does not come to hold");
    std::this_thread::yield();
  }
}

inline Bytes AwaitMessage(ControlSocket& socket) {
  for (const Deadline deadline = Soon(); !deadline.Passed();) {
    if (auto message = socket.Receive()) return *std::move(message);
    pollfd item{socket.fd(), POLLIN, 0};
    PollFor({&item, 1}, deadline.Remaining());
  }
  throw Error(ErrorCode::kDeadlineExceeded, "no message");
}

// Waits for a communicator, or for what goes wrong with it.
inline void Settle(Communicator& communicator) {
  AwaitThat([&] { return communicator.Settled(); });
}

// Less than the channel's own: chunks of a few come in several pieces.
inline constexpr std::size_t kTestPieceBytes = std::size_t{4} << 20;

inline std::unique_ptr<Transport> TransportOf(NcclParts parts) {
  parts.piece_bytes = kTestPieceBytes;
  return MakeNcclTransport([parts] { return parts; });
}

// A receiver's end that a test plays, message by message.
class RawReceiver {
 public:
  RawReceiver(const std::string& address, const NcclParts& parts)
      : parts_(parts),
        address_(ControlAddress::Parse("nccl", address)),
        socket_(ControlSocket::Connect(address_, Soon())) {}

  ControlSocket& socket() { return socket_; }
  Hello RightHello() const {
    return {kVersion, address_.key, static_cast<std::uint32_t>(parts_.library->version()), parts_.device->uuid()};
  }
  void Say(NcclKind kind) { socket_.Send(Encode(BareOf(kind))); }
  void Say(NcclKind kind, std::uint64_t number) { socket_.Send(Encode(OfEpoch{kind, number})); }
  void Ask(std::uint64_t ticket, std::uint64_t offer, const std::vector<Region>& regions) {
    socket_.Send(Encode(Request{ticket, offer, regions}));
  }
  Bytes Await(NcclKind kind) {
    Bytes message = AwaitMessage(socket_);
    if (KindOf(message) != kind) throw Error(ErrorCode::kCorrupt, "another message than the test awaits");
    return message;
  }

  // The steps into an epoch; Enter does what is left of them.
  void Greet() {
    socket_.Send(Encode(RightHello()));
    Decode<Welcome>(Await(NcclKind::kWelcome));
  }
  // Pieces of the epoch before may come first.
  std::uint64_t AwaitCall() {
    Bytes message = AwaitMessage(socket_);
    while (KindOf(message) == NcclKind::kPieces) message = AwaitMessage(socket_);
    return called_ = Decode<OfEpoch>(message).epoch;
  }
  std::uint64_t called() const { return called_; }  // to which epoch
  void Answer(std::uint32_t requests = 0) { socket_.Send(Encode(Ready{called_, requests})); }
  Membership AwaitEpoch() { return Decode<Membership>(Await(NcclKind::kEpoch), "EPOCH"); }
  void Begin(const Membership& membership) { communicator_.emplace(*parts_.library, *parts_.device, membership); }
  void Stand() {
    Settle(*communicator_);
    Say(NcclKind::kStands, called_);
  }
  void Enter() {
    Greet();
    AwaitCall();
    Answer();
    Begin(AwaitEpoch());
    Stand();
  }
  Communicator& communicator() { return *communicator_; }
  void End() { communicator_.reset(); }
  // As when a process ends.
  void Vanish() {
    socket_ = ControlSocket(UniqueFd());
    communicator_.reset();
  }

 private:
  NcclParts parts_;
  ControlAddress address_;
  ControlSocket socket_;
  std::uint64_t called_ = 0;
  std::optional<Communicator> communicator_;
};

inline void ExpectCut(RawReceiver& receiver) {
  const std::string error = layercast::testing::ErrorOf(
      [&] {
        while (true) AwaitMessage(receiver.socket());
      },
      ErrorCode::kUnavailable);
  EXPECT_NE(error.find("the connection was lost"), std::string::npos) << error;
}

// A publisher of 12 MiB as offer 1. Receivers are of the same library and device, where a test has no others.
class NcclChannel : public ::testing::Test {
 protected:
  static constexpr std::size_t kSize = std::size_t{12} << 20;

  std::unique_ptr<FetchingEnd> Connect() { return transport_->Connect(publisher_->address(), Soon()); }
  void ExpectServing() {
    const auto receiver = Connect();
    test::Fetch fetch({{0, 1, 99'999, 1, 99'999}});
    EXPECT_TRUE(fetch.IsRight(test::FetchOne(*receiver, 1, fetch)));
  }
  RawReceiver Raw() const { return {publisher_->address(), {library_, device_}}; }

  std::shared_ptr<test::FakeNccl> library_ = std::make_shared<test::FakeNccl>();
  std::shared_ptr<test::FakeChannelDevice> device_ = std::make_shared<test::FakeChannelDevice>();
  std::unique_ptr<Transport> transport_ = TransportOf({library_, device_});
  std::unique_ptr<OfferingEnd> publisher_ = transport_->Offering({});
  test::PublishedBytes published_{*publisher_, 1, std::array{kSize}};
};

}  // namespace layercast::nccl_channel
