// The receiver's end of the zmq channel: one DEALER socket. Pieces are copied to the caller's destination as they come.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "src/transport/channel/channel.h"
#include "src/transport/channel/connection_guard.h"
#include "src/transport/channel/liveness.h"
#include "src/transport/channel/requests_under_way.h"
#include "src/transport/zmq/connection_monitor.h"
#include "src/transport/zmq/zmq_messages.h"

namespace layercast::zmq_channel {

// One thread only.
class ZmqFetchingEnd final : public FetchingEnd {
 public:
  // Throws kUnavailable or kDeadlineExceeded, naming `address`.
  ZmqFetchingEnd(const std::string& address, Deadline deadline);
  ~ZmqFetchingEnd() override { Close(); }

  bool attaches() const override { return false; }
  void Submit(const ChunkRequest& request) override;
  std::optional<ChunkCompletion> Poll(Deadline deadline) override;
  void Close() noexcept override;

 private:
  struct Chunk : RequestedChunk {
    std::uint64_t arrived = 0;  // bytes
  };

  void Greet(const std::string& address, Deadline deadline);
  void Send(const std::vector<std::byte>& message);
  // Takes the messages that are there; true once a chunk is complete.
  bool Receive();
  void TakeMessage(std::span<const std::byte> message);
  void TakePiece(const PieceHeader& header, std::span<const std::byte> bytes);
  // Waits a moment for a message, at most until the deadline. Throws kUnavailable if the publisher is gone or silent.
  void Wait(Deadline deadline);
  void ExpectConnected();
  void ExpectAnEnd();  // throws kCorrupt if the message that is coming is too long

  ConnectionGuard guard_;
  zmq::context_t context_;
  zmq::socket_t socket_;
  ConnectionMonitor monitor_;
  RequestsUnderWay<Chunk> requests_;
  bool welcomed_ = false;
  std::optional<PieceHeader> announced_;  // the next message holds this piece's bytes
  Liveness liveness_;
};

}  // namespace layercast::zmq_channel
