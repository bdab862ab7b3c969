#include "src/transport/zmq/offer_book.h"

#include <algorithm>
#include <string>
#include <utility>

#include "layercast/error.h"
#include "src/base/log.h"
#include "src/transport/zmq/messages.h"

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace layercast::zmq_channel {
namespace {
constexpr std::size_t kSparePieces = 32;
constexpr std::chrono::milliseconds kAgain{100};

// ZeroMQ hands pieces from the service thread to its own by a queue that ThreadSanitizer cannot look into.
#if defined(__SANITIZE_THREAD__)
void GiveAway(Piece& piece) { __tsan_release(&piece); }
void TakeBack(Piece& piece) { __tsan_acquire(&piece); }
#else
void GiveAway(Piece& /*piece*/) {}
void TakeBack(Piece& /*piece*/) {}
#endif
}  // namespace

void OfferBook::Add(const Offer& offer) {
  auto offered = std::make_shared<Offered>();
  offered->tensors = offer.tensors;
  const std::lock_guard lock(mutex_);
  if (!offers_.emplace(offer.id, std::move(offered)).second) {
    throw Error(ErrorCode::kInvalidArgument, "zmq: offer " + std::to_string(offer.id) + " is there already");
  }
}

void OfferBook::Remove(std::uint64_t offer_id, std::chrono::milliseconds grace) {
  std::unique_lock lock(mutex_);
  const auto found = offers_.find(offer_id);
  if (found == offers_.end()) return;
  const std::shared_ptr<Offered> offered = found->second;
  offers_.erase(found);
  offered->removed = true;
  service_.Wake();  // what waits to be sent is refused now
  const auto drained = [&] { return offered->pieces_under_way == 0; };
  if (changed_.wait_for(lock, grace, drained)) return;
  log::warn("zmq: receivers hold {} pieces of offer {}, which is removed: they lose their connection",
            offered->pieces_under_way, offer_id);
  do {
    for (const auto& piece : under_way_) {
      if (piece->offered == offered) piece->peer->connection.Cut();
    }
  } while (!changed_.wait_for(lock, kAgain, drained));
}

std::shared_ptr<Offered> OfferBook::Find(std::uint64_t offer_id) const {
  const std::lock_guard lock(mutex_);
  const auto found = offers_.find(offer_id);
  if (found == offers_.end()) throw Error(ErrorCode::kNotFound, "offer " + std::to_string(offer_id) + " is not there");
  return found->second;
}

Piece* OfferBook::Begin(const std::shared_ptr<Offered>& offered, const std::shared_ptr<Peer>& peer) {
  const std::lock_guard lock(mutex_);
  if (offered->removed) return nullptr;
  if (spare_.empty()) {
    spare_.push_back(std::make_unique<Piece>());
    spare_.back()->gathered = Buffer(memory_, kPieceBytes);
  }
  Piece* piece = under_way_.emplace_back(std::move(spare_.back())).get();
  spare_.pop_back();
  piece->book = this;
  piece->offered = offered;
  piece->peer = peer;
  piece->frames = 2;
  ++offered->pieces_under_way;
  ++peer->pieces_under_way;
  return piece;
}

void OfferBook::HandOver(Piece& piece) { GiveAway(piece); }

void OfferBook::EndFrame(void* /*data*/, void* piece) {
  auto& ended = *static_cast<Piece*>(piece);
  TakeBack(ended);
  if (--ended.frames == 0) ended.book->End(ended);
}

void OfferBook::End(Piece& piece) {
  const std::lock_guard lock(mutex_);
  if (--piece.offered->pieces_under_way == 0) changed_.notify_all();
  // Waking the service for every piece would cost a third of the speed; idle peers it forgets in its own time.
  if (--piece.peer->pieces_under_way == kRefillBelow) service_.Wake();
  piece.offered.reset();
  piece.peer.reset();
  const auto at = std::find_if(under_way_.begin(), under_way_.end(), [&](const auto& p) { return p.get() == &piece; });
  if (spare_.size() < kSparePieces) spare_.push_back(std::move(*at));
  under_way_.erase(at);
}

}  // namespace layercast::zmq_channel
