// The receiver's end of the zmq channel: one DEALER socket. Pieces are copied to the caller's destination as they come.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "src/net/keys/keys.h"
#include "src/transport/channel/fetching_base.h"
#include "src/transport/zmq/connection_monitor.h"
#include "src/transport/zmq/zmq_messages.h"

namespace layercast::zmq_channel {

// A chunk that was asked for.
struct Chunk : RequestedChunk {
  std::uint64_t arrived = 0;  // bytes
};

// One thread only.
class ZmqFetchingEnd final : public FetchingBase<Chunk> {
 public:
  // Throws kUnavailable or kDeadlineExceeded, naming `address`.
  ZmqFetchingEnd(const std::string& address, const Keys& keys, Deadline deadline);
  ~ZmqFetchingEnd() override { Close(); }

  bool Rest() noexcept override;
  bool Resume() noexcept override;

 private:
  void Connect(const std::string& address);
  bool ConnectsAgain(const std::string& address);
  void Greet(const std::string& address, Deadline deadline);
  void Send(const std::vector<std::byte>& message) override;
  void ExpectThere() override;
  bool Progress() override;
  void Wait(Deadline deadline) override;
  void Sleep(Deadline deadline) override;
  void End() noexcept override;
  // Takes the messages that are there; true once a chunk is complete.
  bool Receive();
  void TakeMessage(std::span<const std::byte> message);
  void TakePiece(const PieceHeader& header, std::span<const std::byte> bytes);
  void ExpectAnEnd();  // throws kCorrupt if the message that is coming is too long

  zmq::context_t context_;
  zmq::socket_t socket_;
  ConnectionMonitor monitor_;
  bool welcomed_ = false;
  int more_tries_;  // to connect,
  Deadline more_tries_until_;
  std::optional<PieceHeader> announced_;  // the next message holds this piece's bytes
};

}  // namespace layercast::zmq_channel
