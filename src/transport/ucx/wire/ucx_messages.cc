#include "src/transport/ucx/wire/ucx_messages.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "src/base/bytes/bytes.h"
#include "src/transport/channel/message_fields.h"
#include "src/transport/ucx/wire/remote_key.h"

namespace layercast::ucx_channel {
namespace {

constexpr std::string_view kMagic = "LCUX";

void PutShort(ByteWriter& writer, std::string_view text) {
  const std::string_view kept = text.substr(0, 255);
  writer.Put(static_cast<std::uint8_t>(kept.size()));
  writer.PutBytes(kept);
}

void PutWorkerAddress(ByteWriter& writer, std::span<const std::byte> address) {
  writer.Put(static_cast<std::uint16_t>(address.size()));
  PutRaw(writer, address);
}

std::string GetShort(ByteReader& reader) { return reader.GetText(reader.Get<std::uint8_t>("length"), "text"); }

std::vector<std::byte> GetWorkerAddress(ByteReader& reader) {
  const auto size = reader.Get<std::uint16_t>("size of the worker's address");
  if (size == 0 || size > kMaxAddressBytes) reader.Fail("a worker's address of " + std::to_string(size) + " bytes");
  const std::span<const std::byte> bytes = reader.GetBytes(size, "address");
  return {bytes.begin(), bytes.end()};
}

void PutPlace(ByteWriter& writer, const RemotePlace& place) {
  writer.Put(place.address);
  writer.Put(static_cast<std::uint16_t>(place.key.size()));
  PutRaw(writer, place.key);
}

RemotePlace GetPlace(ByteReader& reader) {
  RemotePlace place;
  place.address = reader.Get<std::uint64_t>("address");
  const auto size = reader.Get<std::uint16_t>("size of the key");
  if (size == 0 || size > kMaxKeyBytes) reader.Fail("a key of " + std::to_string(size) + " bytes");
  const std::span<const std::byte> key = reader.GetBytes(size, "key");
  place.key.assign(key.begin(), key.end());
  return place;
}

}  // namespace

std::vector<std::byte> EncodeHello(const Hello& hello) {
  ByteWriter writer = OpenMessage(Kind::kHello);
  PutGreeting(writer, kMagic, hello.version);
  PutRaw(writer, hello.key);
  PutFlag(writer, hello.reads);
  for (const std::string& text : {hello.host.boot_id, hello.host.network, hello.host.user, hello.host.process}) {
    PutShort(writer, text);
  }
  return std::move(writer).Take();
}

std::vector<std::byte> EncodeWelcome(const Welcome& welcome) {
  ByteWriter writer = OpenMessage(Kind::kWelcome);
  PutGreeting(writer, kMagic, welcome.version);
  writer.Put(static_cast<std::uint8_t>(welcome.lanes));
  PutRaw(writer, welcome.token);
  PutWorkerAddress(writer, welcome.address);
  if (welcome.lanes == Lanes::kReads) PutPlace(writer, welcome.token_place);
  return std::move(writer).Take();
}

std::vector<std::byte> EncodeAddress(std::span<const std::byte> address) {
  ByteWriter writer = OpenMessage(kAddress);
  PutWorkerAddress(writer, address);
  return std::move(writer).Take();
}

std::vector<std::byte> EncodeActiveHeader(const ActiveHeader& header) {
  ByteWriter writer = OpenMessage(header.kind);
  PutRaw(writer, header.token);
  writer.Put(header.ticket);
  writer.Put(header.offset);
  return std::move(writer).Take();
}

std::vector<std::byte> EncodeGranted(const Granted& granted) {
  ByteWriter writer = OpenMessage(kGranted);
  writer.Put(granted.ticket);
  PutFlag(writer, granted.last);
  writer.Put(static_cast<std::uint32_t>(granted.tensors.size()));
  for (const GrantedTensor& each : granted.tensors) {
    writer.Put(each.tensor);
    PutPlace(writer, each.place);
  }
  return std::move(writer).Take();
}

std::vector<std::byte> EncodeRead(std::uint64_t ticket) { return EncodeTicket(kRead, ticket); }

Hello DecodeHello(std::span<const std::byte> message) {
  ByteReader reader = OpenMessage(message, Kind::kHello, "HELLO");
  Hello hello;
  hello.version = GetGreeting(reader, kMagic);
  hello.key = GetRaw<sizeof(Token)>(reader, "token");
  hello.reads = GetFlag(reader, "reads");
  for (std::string* text : {&hello.host.boot_id, &hello.host.network, &hello.host.user, &hello.host.process}) {
    *text = GetShort(reader);
  }
  reader.ExpectEnd();
  return hello;
}

Welcome DecodeWelcome(std::span<const std::byte> message) {
  ByteReader reader = OpenMessage(message, Kind::kWelcome, "WELCOME");
  Welcome welcome;
  welcome.version = GetGreeting(reader, kMagic);
  const auto lanes = reader.Get<std::uint8_t>("lanes");
  if (lanes < 1 || lanes > 3) reader.Fail("lanes of kind " + std::to_string(lanes));
  welcome.lanes = static_cast<Lanes>(lanes);
  welcome.token = GetRaw<sizeof(Token)>(reader, "token");
  welcome.address = GetWorkerAddress(reader);
  if (welcome.lanes == Lanes::kReads) welcome.token_place = GetPlace(reader);
  reader.ExpectEnd();
  return welcome;
}

std::vector<std::byte> DecodeAddress(std::span<const std::byte> message) {
  ByteReader reader = OpenMessage(message, kAddress, "ADDRESS");
  std::vector<std::byte> address = GetWorkerAddress(reader);
  reader.ExpectEnd();
  return address;
}

ActiveHeader DecodeActiveHeader(std::span<const std::byte> bytes) {
  ActiveHeader header;
  header.kind = DecodeKind(bytes);
  if (header.kind != Kind::kPiece && header.kind != Kind::kPong) {
    throw Error(ErrorCode::kCorrupt, "an unknown kind of active message");
  }
  ByteReader reader = OpenMessage(bytes, header.kind, "active message");
  header.token = GetRaw<sizeof(Token)>(reader, "token");
  header.ticket = reader.Get<std::uint64_t>("ticket");
  header.offset = reader.Get<std::uint64_t>("offset");
  reader.ExpectEnd();
  return header;
}

Granted DecodeGranted(std::span<const std::byte> message) {
  ByteReader reader = OpenMessage(message, kGranted, "GRANTED");
  Granted granted;
  granted.ticket = reader.Get<std::uint64_t>("ticket");
  granted.last = GetFlag(reader, "last");
  const auto count = reader.Get<std::uint32_t>("number of tensors");
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto tensor = reader.Get<std::uint32_t>("tensor");
    granted.tensors.push_back({tensor, GetPlace(reader)});
  }
  reader.ExpectEnd();
  return granted;
}

std::uint64_t DecodeRead(std::span<const std::byte> message) { return DecodeTicket(message, kRead, "READ"); }

}  // namespace layercast::ucx_channel
