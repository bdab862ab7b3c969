#include "src/transport/zmq/piece_pool.h"

#include <algorithm>
#include <utility>

#include "src/base/memory/buffer_for.h"
#include "src/transport/zmq/zmq_messages.h"

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace layercast::zmq_channel {
namespace {
constexpr std::size_t kSparePieces = 32;

// ZeroMQ passes pieces from the service thread to its own threads through a queue that ThreadSanitizer cannot see into,
// so these two tell it of the order.
#if defined(__SANITIZE_THREAD__)
void GiveAway(Piece& piece) { __tsan_release(&piece); }
void TakeBack(Piece& piece) { __tsan_acquire(&piece); }
#else
void GiveAway(Piece& /*piece*/) {}
void TakeBack(Piece& /*piece*/) {}
#endif
}  // namespace

PiecePool::Filling PiecePool::Begin(const std::shared_ptr<Offered>& offered, const std::shared_ptr<Peer>& peer) {
  OfferUse use = book_.Begin(offered);
  if (use == nullptr) return nullptr;
  const std::lock_guard lock(mutex_);
  if (spare_.empty()) {
    auto fresh = std::make_unique<Piece>();
    fresh->gathered = BufferFor("a piece to send", memory_, kPieceBytes);
    spare_.push_back(std::move(fresh));
  }
  Piece* piece = under_way_.emplace_back(std::move(spare_.back())).get();
  spare_.pop_back();
  piece->pool = this;
  piece->offered = std::move(use);
  piece->peer = peer;
  ++peer->pieces_under_way;
  return Filling(piece);
}

void PiecePool::HandOver(Filling piece) { GiveAway(*piece.release()); }

void PiecePool::End(void* /*data*/, void* piece) {
  auto& ended = *static_cast<Piece*>(piece);
  TakeBack(ended);
  ended.pool->Recycle(ended);
}

void PiecePool::Cut(const std::shared_ptr<Offered>& offered) {
  const std::lock_guard lock(mutex_);
  for (const auto& piece : under_way_) {
    if (piece->offered.get() == offered.get()) piece->peer->connection.Cut();
  }
}

void PiecePool::Recycle(Piece& piece) {
  OfferUse offered;  // ends once the lock is gone
  {
    const std::lock_guard lock(mutex_);
    offered = std::move(piece.offered);  // Cut looks at it
    // Waking the service thread for every piece would cost a third of the speed. That a peer has become idle it notices
    // by itself later.
    if (--piece.peer->pieces_under_way == kRefillBelow) service_.Ring();
    piece.peer.reset();
    const auto at =
        std::find_if(under_way_.begin(), under_way_.end(), [&](const auto& p) { return p.get() == &piece; });
    if (spare_.size() < kSparePieces) spare_.push_back(std::move(*at));
    under_way_.erase(at);
  }
}

}  // namespace layercast::zmq_channel
