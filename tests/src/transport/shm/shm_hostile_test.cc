// The shm channel against peers that break its protocol: they lose their connection, and nobody else notices.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <functional>
#include <string>
#include <thread>

#include "layercast/error.h"
#include "src/net/local_socket.h"
#include "src/transport/shm/memfd.h"
#include "src/transport/shm/unix_socket.h"
#include "tests/conformance/published_bytes.h"
#include "tests/support/error_of.h"
#include "tests/support/no_more_files.h"

namespace layercast::shm_channel {
namespace {

using test::Fetch;
using test::FetchOne;
using test::kPatience;

constexpr std::array<std::size_t, 1> kSizes{10'000};
constexpr std::string_view kPrefix = "shm://";

Deadline Soon() { return Deadline::After(kPatience); }

class ShmPublisher : public ::testing::Test {
 protected:
  UniqueFd ConnectRaw() const {
    return ConnectLocally(SOCK_SEQPACKET, publisher_->address().substr(kPrefix.size()), Soon());
  }
  UniqueFd ConnectGreeted() const {
    UniqueFd socket = ConnectRaw();
    EXPECT_TRUE(SendMessage(socket, {Kind::kHello, kVersion, kChannelMagic}));
    Message answer;
    EXPECT_TRUE(WaitReadable(socket, Soon()));
    EXPECT_EQ(ReceiveMessage(socket, answer), Received::kMessage);
    EXPECT_EQ(answer.kind, Kind::kWelcome);
    return socket;
  }
  static void ExpectCut(const UniqueFd& socket) {
    Message answer;
    ASSERT_TRUE(WaitReadable(socket, Soon()));
    EXPECT_EQ(ReceiveMessage(socket, answer), Received::kEnd);
  }
  void ExpectServing() const {
    const auto receiver = transport_->Connect(publisher_->address(), Soon());
    Fetch fetch({{0, 1, 9'999, 1, 9'999}});
    EXPECT_TRUE(fetch.IsRight(FetchOne(*receiver, 1, fetch)));
  }

  std::unique_ptr<Transport> transport_ = test::TransportNamed("shm");
  std::unique_ptr<OfferingEnd> publisher_ = transport_->Offering({});
  test::PublishedBytes published_{*publisher_, 1, kSizes};
};

TEST_F(ShmPublisher, CutsWhoeverDoesNotGreetProperly) {
  const std::array<Message, 5> wrong = {{{Kind::kHello, kVersion, 12345},
                                         {Kind::kHello, 0, kChannelMagic},
                                         {Kind::kAttach, 0, 1},
                                         {Kind::kWelcome, kVersion, kChannelMagic},
                                         {static_cast<Kind>(77), kVersion, kChannelMagic}}};
  for (const Message& message : wrong) {
    const UniqueFd socket = ConnectRaw();
    ASSERT_TRUE(SendMessage(socket, message));
    ExpectCut(socket);
  }
  ExpectServing();
}

TEST_F(ShmPublisher, CutsWhoeverSendsAnotherSize) {
  const std::vector<char> bytes(100'000, 'x');
  for (const std::size_t size : {1U, 16U, 31U, 33U, 100'000U}) {
    const UniqueFd socket = ConnectGreeted();
    ASSERT_EQ(::send(socket.get(), bytes.data(), size, 0), static_cast<ssize_t>(size));
    ExpectCut(socket);
  }
  ExpectServing();
}

TEST_F(ShmPublisher, CutsWhoeverAsksNonsenseAndRefusesUnknownOffers) {
  for (const Message& message : {Message{Kind::kHello, kVersion, kChannelMagic}, Message{Kind::kAttach, 9, 1}}) {
    const UniqueFd socket = ConnectGreeted();
    ASSERT_TRUE(SendMessage(socket, message));
    ExpectCut(socket);
  }
  const UniqueFd socket = ConnectGreeted();
  ASSERT_TRUE(SendMessage(socket, {Kind::kAttach, 0, ~std::uint64_t{0}}));
  Message answer;
  ASSERT_TRUE(WaitReadable(socket, Soon()));
  ASSERT_EQ(ReceiveMessage(socket, answer), Received::kMessage);
  EXPECT_EQ(answer.kind, Kind::kRefused);
  ExpectServing();
}

TEST_F(ShmPublisher, DropsDescriptorsThatItIsSent) {
  const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  const UniqueFd socket = ConnectGreeted();
  const std::vector<int> fds(50, null);
  for (int i = 0; i < 5; ++i) SendMessage(socket, {Kind::kAttach, 9, 1}, fds);
  ExpectCut(socket);
  ::close(null);
  ExpectServing();
}

TEST_F(ShmPublisher, CutsWhoeverTakesNoAnswers) {
  const UniqueFd socket = ConnectGreeted();
  // It asks and never reads: the answers fill the socket, and then the connection ends.
  const Deadline deadline = Soon();
  while (SendMessage(socket, {Kind::kAttach, 0, 2}) || errno == EAGAIN) ASSERT_FALSE(deadline.Passed());
  ExpectServing();
}

TEST_F(ShmPublisher, HasABoundedNumberOfConnections) {
  std::vector<UniqueFd> sockets;
  for (int i = 0; i < 256; ++i) sockets.push_back(ConnectGreeted());
  ExpectCut(ConnectRaw());
  sockets.resize(100);
  while (true) {  // the ends of the others are noticed in their own time
    try {
      ExpectServing();
      break;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::kUnavailable) << error.what();
    }
  }
}

// A publisher that answers one ATTACH with what a test wants.
class FakePublisher {
 public:
  using Answer = std::function<void(const UniqueFd&)>;
  explicit FakePublisher(Answer answer) : listener_(ListenLocally(SOCK_SEQPACKET, name_)) {
    thread_ = std::jthread([this, answer = std::move(answer)] {
      if (!WaitReadable(listener_, Soon())) return;
      const UniqueFd socket = AcceptLocally(listener_);
      Message message;
      if (WaitReadable(socket, Soon()) && ReceiveMessage(socket, message) == Received::kMessage) {
        SendMessage(socket, {Kind::kWelcome, kVersion, kChannelMagic});
      }
      if (WaitReadable(socket, Soon()) && ReceiveMessage(socket, message) == Received::kMessage) answer(socket);
      WaitReadable(socket, Soon());  // until the receiver closes
    });
  }
  std::string address() const { return std::string(kPrefix) + name_; }

 private:
  std::string name_;
  UniqueFd listener_;
  std::jthread thread_;
};

void ExpectCorrupt(const FakePublisher::Answer& answer) {
  const FakePublisher publisher(answer);
  const auto transport = test::TransportNamed("shm");
  const auto receiver = transport->Connect(publisher.address(), Soon());
  Fetch fetch({{0, 0, 100, 1, 100}});
  try {
    FetchOne(*receiver, 1, fetch);
    ADD_FAILURE() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorrupt) << error.what();
    EXPECT_NE(std::string(error.what()).find(publisher.address()), std::string::npos) << error.what();
  }
}

constexpr std::uint64_t kLive = std::uint64_t{1} << 63 | 1;  // of offer 1

struct Table {
  std::uint64_t magic = 0x4C42544D4853434C;
  std::uint64_t live = kLive;
  std::uint64_t tensors = 1;
  std::uint32_t segment = 0;
  std::uint32_t zero = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 4096;
};

constexpr std::uint64_t kTableAt = 64;
constexpr Message kAttachedTable{Kind::kAttached, 1, 1, kTableAt, sizeof(Table)};

void AnswerWith(const UniqueFd& socket, const Table& table, const Message& attached = kAttachedTable) {
  const Memfd written = MakeMemfd("tables", kTableAt + sizeof(table));
  std::memcpy(written.memory.base() + kTableAt, &table, sizeof(table));
  const Memfd segment = MakeMemfd("segment", 4096);
  SendMessage(socket, attached, std::array{written.fd.get(), segment.fd.get()});
}

TEST(ShmReceiver, AttachesToAProperTable) {
  const FakePublisher publisher([](const UniqueFd& socket) { AnswerWith(socket, {}); });
  const auto receiver = test::TransportNamed("shm")->Connect(publisher.address(), Soon());
  Fetch fetch({{0, 0, 100, 1, 100}});
  EXPECT_EQ(FetchOne(*receiver, 1, fetch).views.at(0).base[99], std::byte{0});
}

TEST(ShmReceiver, RefusesTablesThatLie) {
  ExpectCorrupt([](const UniqueFd& socket) { AnswerWith(socket, {.magic = 1}); });
  ExpectCorrupt([](const UniqueFd& socket) { AnswerWith(socket, {.tensors = 2}); });
  ExpectCorrupt([](const UniqueFd& socket) { AnswerWith(socket, {.tensors = ~std::uint64_t{0}}); });
  ExpectCorrupt([](const UniqueFd& socket) { AnswerWith(socket, {.segment = 1}); });
  ExpectCorrupt([](const UniqueFd& socket) { AnswerWith(socket, {.bytes = 4097}); });
  ExpectCorrupt([](const UniqueFd& socket) { AnswerWith(socket, {.offset = 1}); });
  ExpectCorrupt([](const UniqueFd& socket) { AnswerWith(socket, {.offset = ~std::uint64_t{0}, .bytes = 2}); });
}

TEST(ShmReceiver, RefusesPlacesWhereNoTableCanBe) {
  const auto answer_at = [](std::uint64_t offset, std::uint64_t bytes) {
    return [=](const UniqueFd& socket) { AnswerWith(socket, {}, {Kind::kAttached, 1, 1, offset, bytes}); };
  };
  constexpr std::uint64_t kEnd = kTableAt + sizeof(Table);
  ExpectCorrupt(answer_at(kTableAt, sizeof(Table) + 1));
  ExpectCorrupt(answer_at(kTableAt, ~std::uint64_t{0}));
  ExpectCorrupt(answer_at(kTableAt, 0));
  ExpectCorrupt(answer_at(kTableAt, 23));  // no header fits
  ExpectCorrupt(answer_at(kTableAt + 4, sizeof(Table) - 24));
  ExpectCorrupt(answer_at(kEnd, sizeof(Table)));
  ExpectCorrupt(answer_at(~std::uint64_t{0} - 7, sizeof(Table)));
}

// What may lie in a table's place once its offer is gone: nothing, a word of another table, or another's mark.
TEST(ShmReceiver, TakesNoTableForThatOfAnotherOffer) {
  for (const std::uint64_t live : {std::uint64_t{0}, std::uint64_t{1}, kLive + 1}) {
    const FakePublisher publisher([live](const UniqueFd& socket) { AnswerWith(socket, {.live = live}); });
    const auto receiver = test::TransportNamed("shm")->Connect(publisher.address(), Soon());
    Fetch fetch({{0, 0, 100, 1, 100}});
    EXPECT_NE(testing::ErrorOf([&] { FetchOne(*receiver, 1, fetch); }, ErrorCode::kNotFound), "no error") << live;
  }
}

TEST(ShmReceiver, SaysSoIfItCannotHaveTheDescriptorsOpen) {
  const auto transport = test::TransportNamed("shm");
  const auto publisher = transport->Offering({});
  const test::PublishedBytes published(*publisher, 1, kSizes);
  const auto receiver = transport->Connect(publisher->address(), Soon());
  const int free = UniqueFd(::dup(0)).get();
  const testing::NoMoreFiles none(static_cast<rlim_t>(free));
  Fetch fetch({{0, 0, 100, 1, 100}});
  const std::string said = testing::ErrorOf([&] { FetchOne(*receiver, 1, fetch); }, ErrorCode::kResourceExhausted);
  const std::string limits = "is " + std::to_string(free) + ", expected at least " + std::to_string(free + 2);
  EXPECT_NE(said.find("RLIMIT_NOFILE (ulimit -n) " + limits), std::string::npos) << said;
}

TEST(ShmReceiver, RefusesDescriptorsThatAreNotSealedMemory) {
  const auto answer_with = [](int table, int segment) {
    return [=](const UniqueFd& socket) {
      SendMessage(socket, {Kind::kAttached, 1, 1, 0, sizeof(Table)}, std::array{table, segment});
    };
  };
  const Memfd good = MakeMemfd("table", sizeof(Table));
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const UniqueFd unsealed(::memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(unsealed.get(), 4096), 0);
  ExpectCorrupt(answer_with(good.fd.get(), null.get()));
  ExpectCorrupt(answer_with(null.get(), good.fd.get()));
  ExpectCorrupt(answer_with(good.fd.get(), unsealed.get()));
  ExpectCorrupt(answer_with(unsealed.get(), good.fd.get()));
}

TEST(ShmReceiver, RefusesAnswersThatDoNotFit) {
  const Memfd good = MakeMemfd("table", sizeof(Table));
  const std::array fds{good.fd.get(), good.fd.get(), good.fd.get()};
  ExpectCorrupt([](const UniqueFd& socket) { SendMessage(socket, {Kind::kAttached, 1, 1}); });
  ExpectCorrupt([&](const UniqueFd& socket) { SendMessage(socket, {Kind::kAttached, 1, 1}, fds); });
  ExpectCorrupt([&](const UniqueFd& socket) { SendMessage(socket, {Kind::kAttached, 2, 99}, fds); });
  ExpectCorrupt([](const UniqueFd& socket) { SendMessage(socket, {Kind::kWelcome, 1, 1}); });
  ExpectCorrupt([](const UniqueFd& socket) { ::send(socket.get(), "short", 5, 0); });
}

}  // namespace
}  // namespace layercast::shm_channel
