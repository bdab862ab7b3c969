// The messages that only the cuda_ipc channel has, as FORMAT.md specifies them; the rest is in
// src/transport/channel/channel_messages.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "src/net/token.h"
#include "src/transport/channel/channel_messages.h"
#include "src/transport/cuda_ipc/segments/driver.h"

namespace layercast::cuda_ipc_channel {

constexpr std::uint16_t kVersion = 2;  // and the oldest that is spoken
constexpr std::string_view kMagic = "LCCI";

constexpr Kind kDone = static_cast<Kind>(4);
constexpr Kind kSegment = static_cast<Kind>(133);
constexpr Kind kGranted = static_cast<Kind>(134);
constexpr Kind kGone = static_cast<Kind>(135);

template <typename Archive>
void Handle(Archive& archive, auto& handle) {
  bool there = handle.has_value();
  Flag(archive, there, "whether there is a handle");
  if (!there) return;
  archive.Set(handle, IpcHandle());
  archive.Array(*handle, "handle");
}

struct Hello {
  static constexpr const char* kName = "HELLO";
  std::uint16_t version = kVersion;
  Token key{};                // the publisher's secret, from its address: it shows that the receiver was told that
  bool takes_events = false;  // it can wait for an event; else it is granted only what has been copied in already
};
void Fields(auto& archive, Is<Hello> auto& hello) {
  Begin(archive, Kind::kHello);
  Greeting(archive, kMagic, hello.version);
  archive.Array(hello.key, "key");
  Flag(archive, hello.takes_events, "takes events");
}

struct Welcome {
  static constexpr const char* kName = "WELCOME";
  std::uint16_t version = kVersion;
  std::optional<IpcHandle> event{};  // behind what is copied into the arena; none if the receiver takes no events
};
void Fields(auto& archive, Is<Welcome> auto& welcome) {
  Begin(archive, Kind::kWelcome);
  Greeting(archive, kMagic, welcome.version);
  Handle(archive, welcome.event);
}

// SEGMENT announces a segment of the arena: once per connection, before the first GRANTED that names it. A segment's
// descriptor comes with the message.
struct Announced {
  static constexpr const char* kName = "SEGMENT";
  std::uint32_t number = 0;  // never used again by this publisher; not 0
  std::uint64_t bytes = 0;
  std::optional<IpcHandle> handle{};  // of a legacy allocation; none: by descriptor
};
void Fields(auto& archive, Is<Announced> auto& segment) {
  Begin(archive, kSegment);
  archive.Number(segment.number, "number");
  archive.Number(segment.bytes, "bytes");
  Handle(archive, segment.handle);
  if (segment.number == 0 || segment.bytes == 0) archive.Refuse("a segment of no number or no bytes");
}

// Where a region of the request begins.
struct Place {
  std::uint32_t segment = 0;  // 0: nowhere, because the region has no bytes
  std::uint64_t offset = 0;
  bool operator==(const Place&) const = default;
};

struct Granted {
  static constexpr const char* kName = "GRANTED";
  std::uint64_t ticket = 0;
  bool waits = false;  // the receiver must wait for the event before it copies
  std::vector<Place> places;
};
void Fields(auto& archive, Is<Granted> auto& granted) {
  constexpr std::size_t place_bytes = 4 + 8;
  Begin(archive, kGranted);
  archive.Number(granted.ticket, "ticket");
  Flag(archive, granted.waits, "waits");
  Rest(archive, granted.places, place_bytes, "places", [&](auto& place) {
    archive.Number(place.segment, "segment");
    archive.Number(place.offset, "offset");
  });
}

// Nothing of what was granted is read any more.
struct Done {
  static constexpr const char* kName = "DONE";
  std::uint64_t ticket = 0;
};
void Fields(auto& archive, Is<Done> auto& done) {
  Begin(archive, kDone);
  archive.Number(done.ticket, "ticket");
}

// Nothing will lie in the segment any more.
struct Gone {
  static constexpr const char* kName = "GONE";
  std::uint32_t segment = 0;
};
void Fields(auto& archive, Is<Gone> auto& gone) {
  Begin(archive, kGone);
  archive.Number(gone.segment, "segment");
}

}  // namespace layercast::cuda_ipc_channel
