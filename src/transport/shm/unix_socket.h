// The messages of the shm channel: short ones over AF_UNIX sockets of type SEQPACKET, which carry descriptors as well.
// Nothing here blocks longer than its deadline.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/base/deadline.h"
#include "src/base/unique_fd.h"

namespace layercast::shm_channel {

// What both ends send; FORMAT.md has the meaning. Value.
enum class Kind : std::uint32_t { kHello = 1, kAttach = 2, kWelcome = 129, kAttached = 130, kRefused = 131 };
struct Message {
  Kind kind = Kind::kHello;
  std::uint32_t number = 0;  // version, number of segments or code
  std::uint64_t value = 0;   // magic or offer
  std::uint64_t offset = 0;  // of the offer's table in the file that comes first
  std::uint64_t bytes = 0;   // the table's
};
static_assert(sizeof(Message) == 32);
constexpr std::uint32_t kVersion = 2;
constexpr std::uint64_t kChannelMagic = 0x4E48434D4853434C;  // "LCSHMCHN" as bytes in memory
constexpr std::uint32_t kNoSuchOffer = 1;

// Never waits. False if the peer is gone or does not take the message.
bool SendMessage(const UniqueFd& socket, const Message& message, std::span<const int> fds = {});

enum class Received : std::uint8_t { kNothing, kMessage, kEnd, kGarbage };
// Never waits. Descriptors that come with the message are appended to `fds`; if it is null, they are closed. Throws
// kResourceExhausted if this process cannot have all of them open.
Received ReceiveMessage(const UniqueFd& socket, Message& message, std::vector<UniqueFd>* fds = nullptr);
// Waits until something can be received, or the peer is gone; false if the deadline passes first.
bool WaitReadable(const UniqueFd& socket, Deadline deadline);

}  // namespace layercast::shm_channel
