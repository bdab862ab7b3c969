// The messages that only the ucx channel has, as FORMAT.md specifies them; the rest is in
// src/transport/channel/channel_messages.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/net/token.h"
#include "src/transport/channel/channel.h"
#include "src/transport/channel/channel_messages.h"
#include "src/transport/ucx/wire/remote_reads.h"

namespace layercast::ucx_channel {

constexpr std::uint16_t kVersion = 1;
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxAddressBytes = 4096;  // a UCX worker's address has 46 bytes over shared memory, 50 over TCP

// How the bytes get to the receiver. kReads: it reads the publisher's memory one-sided.
enum class Lanes : std::uint8_t { kSharedMemory = 1, kNetwork = 2, kReads = 3 };

struct Hello {
  std::uint16_t version = kVersion;
  Token key{};         // the publisher's secret, from its address: it shows that the receiver was told that
  bool reads = false;  // the receiver can read one-sided
  HostIdentity host;   // empty where memory must not be shared
};

struct Welcome {
  std::uint16_t version = kVersion;
  Lanes lanes = Lanes::kNetwork;
  Token token{};                   // of this connection; the header of every active message has it
  std::vector<std::byte> address;  // of the publisher's worker
  RemotePlace token_place;         // kReads only: where the token is to be read, which shows that the lanes work
};

struct GrantedTensor {
  std::uint32_t tensor = 0;
  RemotePlace place;
};

// Tells a receiver where the tensors lie of which its request wants bytes; it may read them until it says READ. Many
// tensors take several messages.
struct Granted {
  std::uint64_t ticket = 0;
  bool last = true;  // of the messages for this ticket
  std::vector<GrantedTensor> tensors;
};

// The header of an active message.
struct ActiveHeader {
  Kind kind = Kind::kPiece;  // or kPong
  Token token{};
  std::uint64_t ticket = 0;  // of a piece
  std::uint64_t offset = 0;
};

constexpr Kind kAddress = static_cast<Kind>(4);
constexpr Kind kRead = static_cast<Kind>(5);
constexpr Kind kGranted = static_cast<Kind>(133);
constexpr std::size_t kGrantedBytes = std::size_t{64} << 10;  // a message that is this long gets no more tensors

std::vector<std::byte> EncodeHello(const Hello& hello);
std::vector<std::byte> EncodeWelcome(const Welcome& welcome);
std::vector<std::byte> EncodeAddress(std::span<const std::byte> address);
std::vector<std::byte> EncodeActiveHeader(const ActiveHeader& header);
std::vector<std::byte> EncodeGranted(const Granted& granted);
std::vector<std::byte> EncodeRead(std::uint64_t ticket);

// All throw kCorrupt on anything but a whole message of that kind and nothing after it.
Hello DecodeHello(std::span<const std::byte> message);
Welcome DecodeWelcome(std::span<const std::byte> message);
std::vector<std::byte> DecodeAddress(std::span<const std::byte> message);
ActiveHeader DecodeActiveHeader(std::span<const std::byte> header);
Granted DecodeGranted(std::span<const std::byte> message);
std::uint64_t DecodeRead(std::span<const std::byte> message);  // its ticket

}  // namespace layercast::ucx_channel
