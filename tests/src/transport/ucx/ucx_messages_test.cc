// The messages of the ucx channel: what is written is read, what is damaged is refused; and how pieces are accounted
// for.
#include "src/transport/ucx/wire/ucx_messages.h"

#include <gtest/gtest.h>

#include "src/transport/ucx/arrived_pieces.h"
#include "src/transport/ucx/wire/remote_key.h"
#include "tests/support/hex.h"
#include "tests/support/transport/damaged_messages.h"

namespace layercast::ucx_channel {
namespace {

Hello SomeHello() { return {kVersion, RandomToken(), true, HostIdentity::Mine()}; }

Welcome SomeWelcome() { return {kVersion, Lanes::kSharedMemory, RandomToken(), std::vector<std::byte>(50), {}}; }

Welcome WelcomeToRead() {
  Welcome welcome = SomeWelcome();
  welcome.lanes = Lanes::kReads;
  welcome.token_place = {1ULL << 47, std::vector<std::byte>(34, std::byte{7})};
  return welcome;
}

Granted SomeGranted() {
  return {7, false, {{3, {1ULL << 47, std::vector<std::byte>(34, std::byte{7})}}, {5, {9, std::vector<std::byte>(1)}}}};
}

TEST(UcxMessages, AreReadAsTheyWereWritten) {
  const Hello hello = SomeHello();
  const Hello read = Decode<Hello>(Encode(hello));
  EXPECT_EQ(read.version, kVersion);
  EXPECT_EQ(read.key, hello.key);
  EXPECT_TRUE(read.reads);
  EXPECT_EQ(read.host, hello.host);
  const Welcome welcome = SomeWelcome();
  const Welcome welcomed = Decode<Welcome>(Encode(welcome));
  EXPECT_EQ(welcomed.lanes, Lanes::kSharedMemory);
  EXPECT_EQ(welcomed.token, welcome.token);
  EXPECT_EQ(welcomed.address, welcome.address);
  EXPECT_EQ(Decode<WorkerAddress>(Encode(WorkerAddress{welcome.address})).address, welcome.address);
  const ActiveHeader header = Decode<ActiveHeader>(Encode(ActiveHeader{Kind::kPiece, hello.key, 7, 1ULL << 40}));
  EXPECT_EQ(header.kind, Kind::kPiece);
  EXPECT_EQ(header.token, hello.key);
  EXPECT_EQ(header.ticket, 7U);
  EXPECT_EQ(header.offset, 1ULL << 40);
}

TEST(UcxMessages, OfReadsAreReadAsTheyWereWritten) {
  const Welcome welcomed = Decode<Welcome>(Encode(WelcomeToRead()));
  EXPECT_EQ(welcomed.lanes, Lanes::kReads);
  EXPECT_EQ(welcomed.token_place.address, WelcomeToRead().token_place.address);
  EXPECT_EQ(welcomed.token_place.key, WelcomeToRead().token_place.key);
  const Granted granted = Decode<Granted>(Encode(SomeGranted()));
  EXPECT_EQ(granted.ticket, 7U);
  EXPECT_FALSE(granted.last);
  ASSERT_EQ(granted.tensors.size(), 2U);
  EXPECT_EQ(granted.tensors[0].tensor, 3U);
  EXPECT_EQ(granted.tensors[0].place.key, SomeGranted().tensors[0].place.key);
  EXPECT_EQ(granted.tensors[1].place.address, 9U);
  EXPECT_EQ(Decode<Read>(Encode(Read{1ULL << 40})).ticket, 1ULL << 40);
}

TEST(UcxMessages, HaveTheirExactBytes) {
  using test::Hex;
  Token token;
  for (std::size_t i = 0; i < token.size(); ++i) token[i] = static_cast<std::byte>(i + 1);
  const std::vector<std::byte> address(5, std::byte{6});
  const RemotePlace place = {1ULL << 47, std::vector<std::byte>(4, std::byte{7})};
  EXPECT_EQ(Hex(Encode(Hello{kVersion, token, true, {"boot", "net", "0", "17@4026"}})),
            "014c43555801000102030405060708090a0b0c0d0e0f100104626f6f74036e657401300731374034303236");
  const Hello of_long_name = {kVersion, token, true, {"boot", "net", "0", std::string(300, 'p')}};
  EXPECT_EQ(Decode<Hello>(Encode(of_long_name)).host.process, std::string(255, 'p'));
  EXPECT_EQ(Hex(Encode(Welcome{kVersion, Lanes::kSharedMemory, token, address, place})),
            "814c4355580100010102030405060708090a0b0c0d0e0f1005000606060606");
  EXPECT_EQ(Hex(Encode(Welcome{kVersion, Lanes::kReads, token, address, place})),
            "814c4355580100030102030405060708090a0b0c0d0e0f10050006060606060000000000800000040007070707");
  EXPECT_EQ(Hex(Encode(WorkerAddress{address})), "0405000606060606");
  EXPECT_EQ(Hex(Encode(ActiveHeader{Kind::kPiece, token, 7, 1ULL << 40})),
            "820102030405060708090a0b0c0d0e0f1007000000000000000000000000010000");
  EXPECT_EQ(Hex(Encode(ActiveHeader{Kind::kPong, token, 0, 0})),
            "830102030405060708090a0b0c0d0e0f1000000000000000000000000000000000");
  EXPECT_EQ(Hex(Encode(Granted{7, false, {{3, place}, {5, {9, std::vector<std::byte>(1)}}}})),
            "8507000000000000000002000000030000000000000000800000040007070707050000000900000000000000010000");
  EXPECT_EQ(Hex(Encode(Read{1ULL << 40})), "050000000000010000");
}

TEST(UcxMessages, AKeyHasBounds) {
  for (const std::size_t size : {std::size_t{0}, kMaxKeyBytes + 1}) {
    Welcome welcome = WelcomeToRead();
    welcome.token_place.key.resize(size);
    EXPECT_THROW(Decode<Welcome>(Encode(welcome)), Error) << size;
    EXPECT_THROW(Decode<Granted>(Encode(Granted{1, true, {{0, {0, std::vector<std::byte>(size)}}}})), Error) << size;
  }
}

std::vector<std::byte> Key(std::uint8_t domains, std::uint8_t kind, std::vector<std::uint8_t> rest) {
  std::vector<std::byte> key(9);
  key[0] = std::byte{domains};
  key[8] = std::byte{kind};
  for (const std::uint8_t byte : rest) key.push_back(std::byte{byte});
  return key;
}

TEST(RemoteKeys, AreAsLongAsTheySay) {
  EXPECT_NO_THROW(CheckKey(Key(1, 0, {2, 7, 7})));
  EXPECT_NO_THROW(CheckKey(Key(5, 0, {0, 1, 7})));
  EXPECT_NO_THROW(CheckKey(Key(1, 0, {2, 7, 7, 9, 9})));  // later versions of UCX have something behind
  const std::vector<std::vector<std::byte>> wrong = {
      {},                         // nothing
      std::vector<std::byte>(8),  // no kind
      Key(0, 0, {}),              // no domain
      Key(1, 0, {0}),             // whose part is empty
      Key(1, 0, {}),              // a domain without its part
      Key(1, 0, {3, 7, 7}),       // cut short
      Key(3, 0, {1, 7}),          // one domain too few
      Key(1, 2, {2, 7, 7}),       // memory of a device
      std::vector<std::byte>(kMaxKeyBytes + 1, std::byte{0}),
  };
  for (const auto& key : wrong) EXPECT_THROW(CheckKey(key), Error) << key.size();
}

void DecodeAny(std::span<const std::byte> message) {
  const Kind kind = DecodeKind(message);
  if (kind == Kind::kHello) {
    Decode<Hello>(message);
  } else if (kind == Kind::kWelcome) {
    Decode<Welcome>(message);
  } else if (kind == kAddress) {
    Decode<WorkerAddress>(message);
  } else if (kind == kGranted) {
    Decode<Granted>(message);
  } else if (kind == kRead) {
    Decode<Read>(message);
  } else {
    Decode<ActiveHeader>(message);
  }
}

TEST(UcxMessages, DamagedOnesAreRefused) {
  testing::ExpectDamagedOnesAreRefused(
      {Encode(SomeHello()), Encode(SomeWelcome()), Encode(WorkerAddress{std::vector<std::byte>(50)}),
       Encode(ActiveHeader{}), Encode(WelcomeToRead()), Encode(SomeGranted()), Encode(Read{1})},
      DecodeAny);
}

TEST(UcxMessages, AWorkersAddressHasBounds) {
  for (const std::size_t size : {std::size_t{0}, kMaxAddressBytes + 1}) {
    EXPECT_THROW(Decode<WorkerAddress>(Encode(WorkerAddress{std::vector<std::byte>(size)})).address, Error) << size;
    Welcome welcome = SomeWelcome();
    welcome.address.resize(size);
    EXPECT_THROW(Decode<Welcome>(Encode(welcome)), Error) << size;
  }
}

TEST(ArrivedPieces, AgreeWithAByteByByteAccount) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const std::uint64_t size = random() % 40;
    ArrivedPieces pieces(size);
    std::vector<bool> seen(size);
    for (int i = 0; i < 2 && !pieces.whole(); ++i) {
      const std::uint64_t offset = random() % 45;
      const std::uint64_t bytes = random() % 20;
      bool fits = offset + bytes <= size && (bytes == 0) == (size == 0);
      for (std::uint64_t at = offset; fits && at < offset + bytes; ++at) fits = !seen[at];
      EXPECT_EQ(pieces.Claim(offset, bytes), fits) << size << " " << offset << " " << bytes;
      for (std::uint64_t at = offset; fits && at < offset + bytes; ++at) seen[at] = true;
    }
  }
}

TEST(ArrivedPieces, AreWholeInAnyOrderButNotEndless) {
  ArrivedPieces pieces(30);
  EXPECT_TRUE(pieces.Claim(20, 10));
  EXPECT_TRUE(pieces.Claim(0, 10));
  EXPECT_FALSE(pieces.whole());
  EXPECT_TRUE(pieces.Claim(10, 10));
  EXPECT_TRUE(pieces.whole());
  ArrivedPieces bytewise(1000);
  std::uint64_t claimed = 0;
  while (claimed < 1000 && bytewise.Claim(claimed, 1)) ++claimed;
  EXPECT_LT(claimed, 10U);
  ArrivedPieces empty(0);
  EXPECT_FALSE(empty.whole());
  EXPECT_TRUE(empty.Claim(0, 0));
  EXPECT_TRUE(empty.whole());
  EXPECT_FALSE(empty.Claim(0, 0));
  EXPECT_FALSE(ArrivedPieces(10).Claim(~std::uint64_t{0}, 5));
}

}  // namespace
}  // namespace layercast::ucx_channel
