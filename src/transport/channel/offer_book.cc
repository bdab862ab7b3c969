#include "src/transport/channel/offer_book.h"

#include <utility>

#include "layercast/error.h"
#include "src/base/log.h"

namespace layercast {
namespace {
constexpr std::chrono::milliseconds kGrace{1000};
constexpr std::chrono::milliseconds kAgain{100};
}  // namespace

void OfferBook::Add(const Offer& offer) {
  auto offered = std::make_shared<Offered>();
  offered->tensors = offer.tensors;
  const std::lock_guard lock(mutex_);
  if (!offers_.emplace(offer.id, std::move(offered)).second) {
    throw Error(ErrorCode::kInvalidArgument, channel_ + ": offer " + std::to_string(offer.id) + " is there already");
  }
}

std::shared_ptr<Offered> OfferBook::Remove(std::uint64_t offer_id, const Cut& cut) {
  std::unique_lock lock(mutex_);
  const auto found = offers_.find(offer_id);
  if (found == offers_.end()) return nullptr;
  std::shared_ptr<Offered> offered = found->second;
  offers_.erase(found);
  offered->removed = true;
  service_.Ring();
  const auto drained = [&] { return offered->pieces_under_way == 0; };
  if (changed_.wait_for(lock, kGrace, drained)) return offered;
  log::warn("{}: receivers hold {} pieces of offer {}, which is removed: they lose their connection", channel_,
            offered->pieces_under_way, offer_id);
  do {
    lock.unlock();
    offered->overdue = true;
    overdue_ = true;
    service_.Ring();
    if (cut) cut(offered);
    lock.lock();
  } while (!changed_.wait_for(lock, kAgain, drained));
  return offered;
}

std::shared_ptr<Offered> OfferBook::Find(std::uint64_t offer_id) const {
  const std::lock_guard lock(mutex_);
  const auto found = offers_.find(offer_id);
  if (found == offers_.end()) throw Error(ErrorCode::kNotFound, "offer " + std::to_string(offer_id) + " is not there");
  return found->second;
}

OfferUse OfferBook::Begin(const std::shared_ptr<Offered>& offered) {
  const std::lock_guard lock(mutex_);
  if (offered->removed) return nullptr;
  ++offered->pieces_under_way;
  return {offered.get(), EndUse{this, offered}};
}

void EndUse::operator()(Offered* used) const { book->End(*used); }

void OfferBook::End(Offered& offered) {
  const std::lock_guard lock(mutex_);
  if (--offered.pieces_under_way == 0) changed_.notify_all();
}

}  // namespace layercast
