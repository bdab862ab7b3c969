// The receiver's end of the nccl channel: requests go over the control socket, pieces come by NCCL into staging memory,
// and are copied from there to where the caller wants them.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/transport/channel.h"
#include "src/transport/connection_guard.h"
#include "src/transport/control_socket.h"
#include "src/transport/liveness.h"
#include "src/transport/nccl/epoch.h"
#include "src/transport/nccl/messages.h"
#include "src/transport/nccl/nccl_transport.h"
#include "src/transport/requests_under_way.h"

namespace layercast::nccl_channel {

// One thread only.
class NcclFetchingEnd final : public FetchingEnd {
 public:
  // Throws kUnavailable, kDeadlineExceeded, or kUnsupported (unequal versions, one GPU for both ends), naming `address`
  // up to its key.
  NcclFetchingEnd(const NcclParts& parts, const std::string& address, Deadline deadline);
  ~NcclFetchingEnd() override { Close(); }

  bool attaches() const override { return false; }
  std::string lane() const override { return "NCCL " + VersionText(parts_.library->version()); }
  void Submit(const ChunkRequest& request) override;
  std::optional<ChunkCompletion> Poll(Deadline deadline) override;
  void Close() noexcept override;

 private:
  struct Chunk : RequestedChunk {
    bool reached = false;       // by the device, which then copies there by itself
    std::size_t announced = 0;  // bytes
    std::size_t landed = 0;
  };
  struct Incoming {
    Chunk* chunk;  // stays where it is until all of it has landed
    std::size_t offset;
    std::size_t bytes;
    std::unique_ptr<Slot> slot;  // from when it is taken
    std::uint64_t copied = 0;    // the mark in the stream of copies
    Transfer AsTransfer() const { return {slot->device.data(), bytes}; }
  };

  void Greet(const ControlAddress& address, Deadline deadline);
  Welcome AwaitWelcome(Deadline deadline);
  void AwaitCommunicator(Deadline deadline);
  // Takes what is there; true when something was. Throws what the publisher refused with, or what is wrong with it.
  bool Progress();
  bool TakeMessages();
  void TakeMessage(std::span<const std::byte> message);
  void TakePiece(const Piece& piece);

  // The stages of a piece: each moves those that can go on to the next.
  bool ProgressDevice();
  bool Receive(bool settled);
  bool CopyOut(bool settled);
  bool Land();
  void CompleteIfWhole(Chunk& chunk);

  [[noreturn]] void ThrowReason(const Error& error);
  bool busy() const { return !receiving_.empty() || !landing_.empty(); }
  void Wait(Deadline deadline);
  void Sleep(std::chrono::microseconds time);

  const NcclParts parts_;
  ConnectionGuard guard_;
  std::optional<ControlSocket> control_;
  std::uint64_t number_ = 0;  // the epoch's, as the publisher counts them
  RequestsUnderWay<Chunk> requests_;
  std::deque<Incoming> announced_;
  Groups<Incoming> receiving_;
  std::deque<Incoming> landing_;
  Liveness liveness_;
  std::optional<Epoch> epoch_;
};

}  // namespace layercast::nccl_channel
