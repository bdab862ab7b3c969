// The messages that only the ucx channel has, as FORMAT.md specifies them; the rest is in
// src/transport/channel/channel_messages.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/net/token.h"
#include "src/transport/channel/channel.h"
#include "src/transport/channel/channel_messages.h"
#include "src/transport/ucx/wire/remote_key.h"
#include "src/transport/ucx/wire/remote_reads.h"

namespace layercast::ucx_channel {

constexpr std::uint16_t kVersion = 1;
constexpr std::string_view kMagic = "LCUX";
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxAddressBytes = 4096;  // a UCX worker's address has 46 bytes over shared memory, 50 over TCP

// How the bytes get to the receiver. kReads: it reads the publisher's memory one-sided.
enum class Lanes : std::uint8_t { kSharedMemory = 1, kNetwork = 2, kReads = 3 };

constexpr Kind kAddress = static_cast<Kind>(4);
constexpr Kind kRead = static_cast<Kind>(5);
constexpr Kind kGranted = static_cast<Kind>(133);
constexpr std::size_t kGrantedBytes = std::size_t{64} << 10;  // a message that is this long gets no more tensors

void Short(auto& archive, auto& text) {
  std::string kept = text.substr(0, 255);
  Text<std::uint8_t>(archive, kept, "length", "text");
  archive.Set(text, std::move(kept));
}

void Address(auto& archive, auto& address) {
  const std::size_t size = Count<std::uint16_t>(archive, address, "size of the worker's address");
  if (size == 0 || size > kMaxAddressBytes) {
    archive.Refuse("a worker's address of " + std::to_string(size) + " bytes");
  }
  archive.Bytes(address, size, "address");
}

void Place(auto& archive, Is<RemotePlace> auto& place) {
  archive.Number(place.address, "address");
  const std::size_t size = Count<std::uint16_t>(archive, place.key, "size of the key");
  if (size == 0 || size > kMaxKeyBytes) archive.Refuse("a key of " + std::to_string(size) + " bytes");
  archive.Bytes(place.key, size, "key");
}

struct Hello {
  static constexpr const char* kName = "HELLO";
  std::uint16_t version = kVersion;
  Token key{};         // the publisher's secret, from its address: it shows that the receiver was told that
  bool reads = false;  // the receiver can read one-sided
  HostIdentity host;   // empty where memory must not be shared
};
void Fields(auto& archive, Is<Hello> auto& hello) {
  Begin(archive, Kind::kHello);
  Greeting(archive, kMagic, hello.version);
  archive.Array(hello.key, "token");
  Flag(archive, hello.reads, "reads");
  Short(archive, hello.host.boot_id);
  Short(archive, hello.host.network);
  Short(archive, hello.host.user);
  Short(archive, hello.host.process);
}

struct Welcome {
  static constexpr const char* kName = "WELCOME";
  std::uint16_t version = kVersion;
  Lanes lanes = Lanes::kNetwork;
  Token token{};                   // of this connection; the header of every active message has it
  std::vector<std::byte> address;  // of the publisher's worker
  RemotePlace token_place;         // kReads only: where the token is to be read, which shows that the lanes work
};
void Fields(auto& archive, Is<Welcome> auto& welcome) {
  Begin(archive, Kind::kWelcome);
  Greeting(archive, kMagic, welcome.version);
  auto lanes = static_cast<std::uint8_t>(welcome.lanes);
  archive.Number(lanes, "lanes");
  if (lanes < 1 || lanes > 3) archive.Refuse("lanes of kind " + std::to_string(lanes));
  archive.Set(welcome.lanes, static_cast<Lanes>(lanes));
  archive.Array(welcome.token, "token");
  Address(archive, welcome.address);
  if (welcome.lanes == Lanes::kReads) Place(archive, welcome.token_place);
}

// The address of the receiver's worker.
struct WorkerAddress {
  static constexpr const char* kName = "ADDRESS";
  std::vector<std::byte> address;
};
void Fields(auto& archive, Is<WorkerAddress> auto& worker) {
  Begin(archive, kAddress);
  Address(archive, worker.address);
}

struct GrantedTensor {
  std::uint32_t tensor = 0;
  RemotePlace place;
};

// Tells a receiver where the tensors lie of which its request wants bytes; it may read them until it says READ. Many
// tensors take several messages.
struct Granted {
  static constexpr const char* kName = "GRANTED";
  std::uint64_t ticket = 0;
  bool last = true;  // of the messages for this ticket
  std::vector<GrantedTensor> tensors;
};
void Fields(auto& archive, Is<Granted> auto& granted) {
  Begin(archive, kGranted);
  archive.Number(granted.ticket, "ticket");
  Flag(archive, granted.last, "last");
  const std::size_t count = Count<std::uint32_t>(archive, granted.tensors, "number of tensors");
  Each(archive, granted.tensors, count, [&](auto& each) {
    archive.Number(each.tensor, "tensor");
    Place(archive, each.place);
  });
}

// The receiver has read what it was granted.
struct Read {
  static constexpr const char* kName = "READ";
  std::uint64_t ticket = 0;
};
void Fields(auto& archive, Is<Read> auto& read) {
  Begin(archive, kRead);
  archive.Number(read.ticket, "ticket");
}

// The header of an active message.
struct ActiveHeader {
  static constexpr const char* kName = "active message";
  Kind kind = Kind::kPiece;  // or kPong
  Token token{};
  std::uint64_t ticket = 0;  // of a piece
  std::uint64_t offset = 0;
};
void Fields(auto& archive, Is<ActiveHeader> auto& header) {
  As<std::uint8_t>(archive, header.kind, "kind");
  archive.Array(header.token, "token");
  archive.Number(header.ticket, "ticket");
  archive.Number(header.offset, "offset");
}

}  // namespace layercast::ucx_channel
