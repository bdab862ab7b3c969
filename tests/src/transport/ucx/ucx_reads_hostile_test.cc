// Receivers that read one-sided, against publishers that grant what was not asked for, or nothing that can be read.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <functional>
#include <thread>
#include <utility>

#include "layercast/error.h"
#include "src/transport/ucx/ucx_transport.h"
#include "src/transport/ucx/wire/ucx_messages.h"
#include "tests/src/transport/ucx/ucx_fixture.h"
#include "tests/support/fakes/fake_one_sided.h"

namespace layercast::ucx_channel {
namespace {

using Messages = std::vector<Bytes>;

constexpr std::size_t kTensorBytes = 5000;

// Greets as it should, and answers the first request, ticket 7, with what a test wants.
class GrantingPublisher {
 public:
  // `place`: of memory that can be read, kTensorBytes long.
  using Answer = std::function<Messages(const RemotePlace& place)>;

  explicit GrantingPublisher(Answer answer) : answer_(std::move(answer)) {
    address_.key = RandomToken();
    UniqueFd listener = Listen("127.0.0.1", address_);
    thread_ = std::jthread([this, moved = std::move(listener)] {
      pollfd item{moved.get(), POLLIN, 0};
      ::poll(&item, 1, static_cast<int>(std::chrono::milliseconds(test::kPatience).count()));
      ControlSocket socket(UniqueFd(::accept4(moved.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)));
      try {
        Serve(socket);
      } catch (const Error&) {  // the receiver has gone
      }
    });
  }
  std::string address() const { return address_.Text(); }

 private:
  void Serve(ControlSocket& socket) {
    const auto memory = FakeMemory();
    const auto target = memory->MakeTarget();
    Token token = RandomToken();
    const auto registered_token = memory->Register(token);
    const auto registered = memory->Register(bytes_);
    AwaitMessage(socket);
    socket.Send(Encode(Welcome{kVersion,
                               Lanes::kReads,
                               token,
                               target->Address(),
                               {reinterpret_cast<std::uintptr_t>(token.data()), registered_token->key()}}));
    EXPECT_EQ(Decode<Read>(AwaitMessage(socket)).ticket, 0U);
    Decode<Request>(AwaitMessage(socket));
    const RemotePlace place{reinterpret_cast<std::uintptr_t>(bytes_.data()), registered->key()};
    for (const Bytes& message : answer_(place)) socket.Send(message);
    while (true) AwaitMessage(socket);
  }
  static std::unique_ptr<RemoteMemory> FakeMemory() { return test::FakeOneSided().MakeMemory(); }

  const Answer answer_;
  Bytes bytes_ = Bytes(kTensorBytes, std::byte{1});
  ControlAddress address_{.channel = "ucx"};
  std::jthread thread_;
};

// What a receiver says that asks it for 100 bytes of tensor 3; none: it has got them.
std::optional<ErrorCode> Outcome(GrantingPublisher::Answer answer, std::uint64_t offset = 10) {
  const GrantingPublisher publisher(std::move(answer));
  const auto receiver =
      MakeUcxTransport({std::make_shared<test::FakeOneSided>(), true})->Connect(publisher.address(), Soon());
  EXPECT_EQ(receiver->lane(), "fake/device, one-sided");
  Bytes destination(300, std::byte{0x5A});
  const std::vector<Region> regions = {{3, offset, 100, 1, 100}};
  std::optional<ErrorCode> code;
  try {
    receiver->Submit({7, 1, regions, destination});
    EXPECT_TRUE(receiver->Poll(Soon()));
    EXPECT_EQ(destination[99], std::byte{1});
  } catch (const Error& error) {
    code = error.code();
  }
  receiver->Close();
  for (std::size_t i = 100; i < destination.size(); ++i) EXPECT_EQ(destination[i], std::byte{0x5A});
  return code;
}

Bytes Grant(std::uint64_t ticket, bool last, std::vector<GrantedTensor> tensors) {
  return Encode(Granted{ticket, last, std::move(tensors)});
}

TEST(UcxReader, TakesWhatItIsGranted) {
  EXPECT_EQ(Outcome([](const RemotePlace& place) { return Messages{Grant(7, true, {{3, place}})}; }), std::nullopt);
  // In two messages.
  EXPECT_EQ(
      Outcome([](const RemotePlace& place) { return Messages{Grant(7, false, {{3, place}}), Grant(7, true, {})}; }),
      std::nullopt);
}

TEST(UcxReader, RefusesGrantsThatItDidNotAskFor) {
  const std::vector<GrantingPublisher::Answer> wrong = {
      [](const RemotePlace& place) { return Messages{Grant(8, true, {{3, place}})}; },              // another's
      [](const RemotePlace& place) { return Messages{Grant(7, true, {{2, place}})}; },              // another tensor
      [](const RemotePlace& place) { return Messages{Grant(7, true, {{3, place}, {3, place}})}; },  // twice
      [](const RemotePlace& /*place*/) { return Messages{Grant(7, true, {})}; },                    // not all
      [](const RemotePlace& /*place*/) { return Messages{Grant(7, false, {})}; },                   // of nothing
      [](const RemotePlace& /*place*/) { return Messages{Encode(Bare{Kind::kPong})}; },             // unasked
      [](const RemotePlace& /*place*/) { return Messages{Encode(Read{7})}; },
      [](const RemotePlace& /*place*/) { return Messages{Bytes{std::byte{99}}}; },
      [](const RemotePlace& place) {  // what the library cannot take
        return Messages{Grant(7, true, {{3, {place.address, Bytes(33)}}})};
      },
      [](const RemotePlace& place) {  // beyond all memory
        return Messages{Grant(7, true, {{3, {~std::uint64_t{5}, place.key}}})};
      },
  };
  for (const auto& answer : wrong) EXPECT_EQ(Outcome(answer), ErrorCode::kCorrupt);
}

TEST(UcxReader, LosesItsConnectionByWhatItMayNotRead) {
  const GrantingPublisher::Answer honest = [](const RemotePlace& place) {
    return Messages{Grant(7, true, {{3, place}})};
  };
  EXPECT_EQ(Outcome(honest, kTensorBytes - 99), ErrorCode::kUnavailable);  // past the end of what the key is for
  EXPECT_EQ(Outcome([](const RemotePlace& place) {
              return Messages{Grant(7, true, {{3, {place.address, Bytes(16)}}})};  // a key of nothing
            }),
            ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace layercast::ucx_channel
