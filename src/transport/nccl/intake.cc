#include "src/transport/nccl/intake.h"

#include <cstring>
#include <utility>

#include "layercast/error.h"

namespace layercast::nccl_channel {

std::size_t Intake::num_announced() const {
  std::size_t pieces = 0;
  for (const Group& group : announced_) pieces += group.pieces.size();
  return pieces;
}

bool Intake::Progress(const std::function<void()>& go, const std::function<void(Chunk&)>& whole) {
  const bool settled = epoch_.communicator().Settled();
  bool moved = settled && !std::exchange(stands_, stands_ || settled);
  moved = Land(whole) || moved;
  moved = CopyOut(settled) || moved;
  moved = Receive(settled, go) || moved;
  const auto patience = parts_.patience.receivers_to_move();
  if (receiving_.Stalled() > patience) {
    throw Error(ErrorCode::kUnavailable, "NCCL has brought nothing for " + std::to_string(patience.count()) + " ms");
  }
  return moved;
}

bool Intake::Receive(bool settled, const std::function<void()>& go) {
  if (!settled || !receiving_.MayBegin() || announced_.empty()) return false;
  if (announced_.front().pieces.size() > slots_.num_spare()) return false;
  Group group = std::move(announced_.front());
  announced_.pop_front();
  std::vector<Transfer> transfers;
  for (Incoming& piece : group.pieces) {
    piece.slot = slots_.Take();
    transfers.push_back({piece.slot->device.data(), piece.bytes});
  }
  Communicator& communicator = epoch_.communicator();
  group.broadcast ? communicator.Broadcast(transfers, epoch_.transfers())
                  : communicator.Receive(transfers, epoch_.transfers());
  receiving_.Add(std::move(group.pieces));
  go();
  return true;
}

bool Intake::CopyOut(bool settled) {
  std::vector<Incoming> received = receiving_.TakeDone(settled, epoch_.transfers());
  for (Incoming& piece : received) {
    std::byte* const to =
        piece.chunk->reached ? piece.chunk->destination.data() + piece.offset : slots_.PinnedOf(*piece.slot);
    epoch_.copies().Copy(to, piece.slot->device.data(), piece.bytes);
    piece.copied = epoch_.copies().Mark();
    landing_.push_back(std::move(piece));
  }
  return !received.empty();
}

bool Intake::Land(const std::function<void(Chunk&)>& whole) {
  bool moved = false;
  while (!landing_.empty() && epoch_.copies().Reached(landing_.front().copied)) {
    moved = true;
    const Incoming piece = std::move(landing_.front());
    landing_.pop_front();
    Chunk& chunk = *piece.chunk;
    if (!chunk.reached) {
      std::memcpy(chunk.destination.data() + piece.offset, piece.slot->pinned.data(), piece.bytes);
    }
    chunk.landed += piece.bytes;
    if (chunk.whole()) whole(chunk);
  }
  return moved;
}

}  // namespace layercast::nccl_channel
