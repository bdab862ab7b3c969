#include "src/transport/cuda_ipc/cuda_ipc_messages.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "src/base/bytes/bytes.h"
#include "src/transport/channel/message_fields.h"

namespace layercast::cuda_ipc_channel {
namespace {

constexpr std::string_view kMagic = "LCCI";
constexpr std::size_t kPlaceBytes = 4 + 8;

void PutHandle(ByteWriter& writer, const std::optional<IpcHandle>& handle) {
  PutFlag(writer, handle.has_value());
  if (handle) PutRaw(writer, *handle);
}

std::optional<IpcHandle> GetHandle(ByteReader& reader) {
  if (!GetFlag(reader, "whether there is a handle")) return std::nullopt;
  return GetRaw<sizeof(IpcHandle)>(reader, "handle");
}

}  // namespace

std::vector<std::byte> EncodeHello(const Hello& hello) {
  ByteWriter writer = OpenMessage(Kind::kHello);
  PutGreeting(writer, kMagic, hello.version);
  PutFlag(writer, hello.takes_events);
  return std::move(writer).Take();
}

std::vector<std::byte> EncodeWelcome(const Welcome& welcome) {
  ByteWriter writer = OpenMessage(Kind::kWelcome);
  PutGreeting(writer, kMagic, welcome.version);
  PutHandle(writer, welcome.event);
  return std::move(writer).Take();
}

std::vector<std::byte> EncodeSegment(const Announced& segment) {
  ByteWriter writer = OpenMessage(kSegment);
  writer.Put(segment.number);
  writer.Put(segment.bytes);
  PutHandle(writer, segment.handle);
  return std::move(writer).Take();
}

std::vector<std::byte> EncodeGranted(const Granted& granted) {
  ByteWriter writer = OpenMessage(kGranted);
  writer.Reserve(1 + 8 + 1 + 4 + granted.places.size() * kPlaceBytes);
  writer.Put(granted.ticket);
  PutFlag(writer, granted.waits);
  writer.Put(static_cast<std::uint32_t>(granted.places.size()));
  for (const Place& place : granted.places) {
    writer.Put(place.segment);
    writer.Put(place.offset);
  }
  return std::move(writer).Take();
}

std::vector<std::byte> EncodeDone(std::uint64_t ticket) { return EncodeTicket(kDone, ticket); }

std::vector<std::byte> EncodeGone(std::uint32_t segment) {
  ByteWriter writer = OpenMessage(kGone);
  writer.Put(segment);
  return std::move(writer).Take();
}

Hello DecodeHello(std::span<const std::byte> message) {
  ByteReader reader = OpenMessage(message, Kind::kHello, "HELLO");
  Hello hello;
  hello.version = GetGreeting(reader, kMagic);
  hello.takes_events = GetFlag(reader, "takes events");
  reader.ExpectEnd();
  return hello;
}

Welcome DecodeWelcome(std::span<const std::byte> message) {
  ByteReader reader = OpenMessage(message, Kind::kWelcome, "WELCOME");
  Welcome welcome;
  welcome.version = GetGreeting(reader, kMagic);
  welcome.event = GetHandle(reader);
  reader.ExpectEnd();
  return welcome;
}

Announced DecodeSegment(std::span<const std::byte> message) {
  ByteReader reader = OpenMessage(message, kSegment, "SEGMENT");
  Announced segment;
  segment.number = reader.Get<std::uint32_t>("number");
  segment.bytes = reader.Get<std::uint64_t>("bytes");
  segment.handle = GetHandle(reader);
  if (segment.number == 0 || segment.bytes == 0) reader.Fail("a segment of no number or no bytes");
  reader.ExpectEnd();
  return segment;
}

Granted DecodeGranted(std::span<const std::byte> message) {
  ByteReader reader = OpenMessage(message, kGranted, "GRANTED");
  Granted granted;
  granted.ticket = reader.Get<std::uint64_t>("ticket");
  granted.waits = GetFlag(reader, "waits");
  const auto count = reader.Get<std::uint32_t>("number of places");
  if (reader.remaining() != count * kPlaceBytes) reader.Fail(std::to_string(count) + " places do not fill the rest");
  granted.places.resize(count);
  for (Place& place : granted.places) {
    place.segment = reader.Get<std::uint32_t>("segment");
    place.offset = reader.Get<std::uint64_t>("offset");
  }
  return granted;
}

std::uint64_t DecodeDone(std::span<const std::byte> message) { return DecodeTicket(message, kDone, "DONE"); }

std::uint32_t DecodeGone(std::span<const std::byte> message) {
  ByteReader reader = OpenMessage(message, kGone, "GONE");
  const auto segment = reader.Get<std::uint32_t>("segment");
  reader.ExpectEnd();
  return segment;
}

}  // namespace layercast::cuda_ipc_channel
