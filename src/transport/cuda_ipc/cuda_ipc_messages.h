// The messages that only the cuda_ipc channel has, as FORMAT.md specifies them; the rest is in
// src/transport/channel/channel_messages.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "src/transport/channel/channel_messages.h"
#include "src/transport/cuda_ipc/segments/driver.h"

namespace layercast::cuda_ipc_channel {

constexpr std::uint16_t kVersion = 1;

struct Hello {
  std::uint16_t version = kVersion;
  bool takes_events = false;  // it can wait for an event; else it is granted only what has been copied in already
};

struct Welcome {
  std::uint16_t version = kVersion;
  std::optional<IpcHandle> event{};  // behind what is copied into the arena; none if the receiver takes no events
};

// Announces a segment of the arena: once per connection, before the first GRANTED that names it. A segment's descriptor
// comes with the message.
struct Announced {
  std::uint32_t number = 0;  // never used again by this publisher; not 0
  std::uint64_t bytes = 0;
  std::optional<IpcHandle> handle{};  // of a legacy allocation; none: by descriptor
};

// Where a region of the request begins.
struct Place {
  std::uint32_t segment = 0;  // 0: nowhere, because the region has no bytes
  std::uint64_t offset = 0;
  bool operator==(const Place&) const = default;
};

struct Granted {
  std::uint64_t ticket = 0;
  bool waits = false;  // the receiver must wait for the event before it copies
  std::vector<Place> places;
};

constexpr Kind kDone = static_cast<Kind>(4);
constexpr Kind kSegment = static_cast<Kind>(133);
constexpr Kind kGranted = static_cast<Kind>(134);
constexpr Kind kGone = static_cast<Kind>(135);

std::vector<std::byte> EncodeHello(const Hello& hello);
std::vector<std::byte> EncodeWelcome(const Welcome& welcome);
std::vector<std::byte> EncodeSegment(const Announced& segment);
std::vector<std::byte> EncodeGranted(const Granted& granted);
std::vector<std::byte> EncodeDone(std::uint64_t ticket);   // nothing of it is read any more
std::vector<std::byte> EncodeGone(std::uint32_t segment);  // nothing will lie in it any more

// All throw kCorrupt on anything but a whole message of that kind and nothing after it.
Hello DecodeHello(std::span<const std::byte> message);
Welcome DecodeWelcome(std::span<const std::byte> message);
Announced DecodeSegment(std::span<const std::byte> message);
Granted DecodeGranted(std::span<const std::byte> message);
std::uint64_t DecodeDone(std::span<const std::byte> message);
std::uint32_t DecodeGone(std::span<const std::byte> message);

}  // namespace layercast::cuda_ipc_channel
