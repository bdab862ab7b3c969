// Which connections a process that listens must end, so that no stranger, and nobody who is admitted, costs it more
// than their share. Used by ConnectionLimits, which knows the connections.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "src/base/deadline.h"

namespace layercast {

// What peers may cost that have not finished their handshake, of one socket. Value.
struct HandshakeBounds {
  bool keyed = false;           // by CURVE; else ZeroMQ's NULL, which anybody finishes
  std::size_t most = 64;        // under way at one time,
  std::size_t of_address = 16;  // and from one address
  std::uint64_t bytes = 4096;   // that a peer may send
  std::chrono::milliseconds time{5000};
  // None is cut for being one of many before: a fleet whose engines come back at the same moment, behind one address,
  // would cut itself again and again. A handshake takes a millisecond or two of a processor.
  std::chrono::milliseconds grace{1000};
};

// A connection whose handshake is not finished. Value.
struct Handshake {
  std::uint64_t number = 0;  // by age
  std::string address{};
  std::uint64_t received = 0;  // bytes
  std::chrono::milliseconds age{};
};

// Those to end, by their numbers: who has sent too much; and of those that are too many, the oldest.
std::vector<std::uint64_t> HandshakesToCut(std::vector<Handshake> under_way, const HandshakeBounds& bounds);

// A connection of which bytes wait to be handled: of whole messages and of an unfinished one. Value.
struct Holder {
  std::uint64_t number = 0;
  std::string who{};  // the user or address that answers for it
  std::uint64_t bytes = 0;
  Deadline::Clock::time_point begun{};  // when the message that is coming was seen first
};

// Those to end so that `holders` have no more than `budget` together: time and again, of whoever has most bytes over
// all of its connections, the one whose message began first. So many connections with a little each do not push out one
// that has a large message to send.
std::vector<std::uint64_t> HoldersToCut(std::vector<Holder> holders, std::uint64_t budget);

}  // namespace layercast
