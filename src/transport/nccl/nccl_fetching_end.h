// The receiver's end of the nccl channel: it joins the epochs that its publisher calls it to, asks for what it lacks,
// and takes what comes. intake.h has what happens within one epoch.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "layercast/error.h"
#include "src/base/deadline.h"
#include "src/transport/channel/controlled_fetching.h"
#include "src/transport/nccl/intake.h"
#include "src/transport/nccl/nccl_transport.h"
#include "src/transport/nccl/wire/nccl_messages.h"
#include "src/transport/nccl/wire/slots.h"

namespace layercast::nccl_channel {

// One thread only.
class NcclFetchingEnd final : public ControlledFetching<Chunk> {
 public:
  // Returns when its first epoch stands. Throws kUnavailable, kDeadlineExceeded, or kUnsupported (unequal versions, one
  // GPU for both ends), naming `address` without its key.
  NcclFetchingEnd(const NcclParts& parts, const std::string& address, Deadline deadline);
  ~NcclFetchingEnd() override { Close(); }

  bool writes_to(const Device& device) const override { return device == parts_.device->device_memory().device(); }
  std::string lane() const override { return "NCCL " + VersionText(parts_.library->version()); }

 private:
  void Greet(const ControlAddress& address, Deadline deadline);
  void Prepare(Chunk& chunk, const ChunkRequest& request, const std::vector<std::byte>& message) override;
  bool Progress() override;
  void Sleep(Deadline deadline) override;
  void End() noexcept override;
  void TakeMessage(std::span<const std::byte> message) override;
  void TakeCall(std::uint64_t epoch);
  void TakeEpoch(const Membership& membership);
  void TakePieces(const PieceGroup& group);
  Chunk& ExpectAskedFor(const Piece& piece);
  void Complete(Chunk& chunk);
  // Ends the epoch that this end was called to last: bytes under way do not come any more, and chunks that are not
  // whole have to be asked for again (AskAgain).
  void EndEpoch();
  void AskAgain();

  bool ProgressDevice();
  // To be called when NCCL has failed at this end. Tells the publisher, which then calls again or ends the connection.
  void Fail(const Error& error);

  const NcclParts parts_;
  std::uint64_t asked_ = 0;            // requests so far
  std::uint64_t number_ = 0;           // of the epoch that this end was called to last; 0: none yet
  bool stood_ = false;                 // some epoch has stood
  bool stands_ = false;                // the present epoch stands, and the publisher knows
  std::optional<Error> failure_;       // NCCL's failure in this epoch
  std::optional<Deadline> called_by_;  // by when the next call must come, after a failure
  Slots slots_;
  std::optional<Intake> intake_;  // while this end is in an epoch
};

}  // namespace layercast::nccl_channel
