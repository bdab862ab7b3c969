// The receiver's end of the nccl channel: it goes where its publisher calls it, asks for what it lacks, and takes what
// comes. What comes in one epoch is intake.h's.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "layercast/error.h"
#include "src/base/deadline.h"
#include "src/transport/channel.h"
#include "src/transport/connection_guard.h"
#include "src/transport/control_socket.h"
#include "src/transport/liveness.h"
#include "src/transport/nccl/intake.h"
#include "src/transport/nccl/messages.h"
#include "src/transport/nccl/nccl_transport.h"
#include "src/transport/nccl/slots.h"
#include "src/transport/requests_under_way.h"

namespace layercast::nccl_channel {

// One thread only.
class NcclFetchingEnd final : public FetchingEnd {
 public:
  // Returns when its first epoch stands. Throws kUnavailable, kDeadlineExceeded, or kUnsupported (unequal versions, one
  // GPU for both ends), naming `address` up to its key.
  NcclFetchingEnd(const NcclParts& parts, const std::string& address, Deadline deadline);
  ~NcclFetchingEnd() override { Close(); }

  bool attaches() const override { return false; }
  bool writes_to(const Device& device) const override { return device == parts_.device->device_memory().device(); }
  std::string lane() const override { return "NCCL " + VersionText(parts_.library->version()); }
  void Submit(const ChunkRequest& request) override;
  std::optional<ChunkCompletion> Poll(Deadline deadline) override;
  void Close() noexcept override;

 private:
  void Greet(const ControlAddress& address, Deadline deadline);
  void AwaitWelcome(Deadline deadline);
  void AwaitEpoch(Deadline deadline);
  // Takes what is there; true when something was. Throws what the publisher refused with, or what is wrong with it.
  bool Progress();
  bool TakeMessages();
  void TakeMessage(std::span<const std::byte> message);
  void TakeCall(std::uint64_t epoch);
  void TakeEpoch(const Membership& membership);
  void TakePieces(const PieceGroup& group);
  Chunk& ExpectAskedFor(const Piece& piece);
  void Complete(Chunk& chunk);
  // Ends the epoch that it was called to last: bytes under way do not come any more. What is not whole is asked for
  // again.
  void EndEpoch();
  void AskAgain();

  bool ProgressDevice();
  // NCCL has failed here: the publisher is told, and calls again, or ends the connection.
  void Fail(const Error& error);
  void Wait(Deadline deadline);
  void Sleep(std::chrono::microseconds time);

  const NcclParts parts_;
  ConnectionGuard guard_;
  std::optional<ControlSocket> control_;
  Liveness liveness_;
  RequestsUnderWay<Chunk> requests_;
  std::uint64_t asked_ = 0;            // requests so far
  std::uint64_t number_ = 0;           // of the epoch that it was called to last; 0: none yet
  bool stood_ = false;                 // an epoch has
  bool stands_ = false;                // this one does, and the publisher knows
  std::optional<Error> failure_;       // of NCCL's in this epoch
  std::optional<Deadline> called_by_;  // after that, to the next
  Slots slots_;
  std::optional<Intake> intake_;  // while it is in an epoch
};

}  // namespace layercast::nccl_channel
