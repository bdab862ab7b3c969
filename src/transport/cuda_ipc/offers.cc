#include "src/transport/cuda_ipc/offers.h"

#include <string>
#include <utility>

#include "layercast/error.h"
#include "src/base/log.h"

namespace layercast::cuda_ipc_channel {
namespace {

std::shared_ptr<OfferInArena> PutIntoArena(const Offer& offer, Arena& arena, CopyIn& copy_in) {
  std::vector<std::size_t> sizes;
  for (const OfferedTensor& tensor : offer.tensors) sizes.push_back(tensor.bytes);
  auto offered = std::make_shared<OfferInArena>();
  offered->blocks = arena.Allocate(sizes);
  std::vector<std::byte*> addresses;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    addresses.push_back(offered->blocks[i].data());
    offered->tensors.push_back({addresses.back(), sizes[i]});
  }
  offered->copied = copy_in.Queue(offer, addresses);
  return offered;
}

}  // namespace

void Offers::Add(const Offer& offer) {
  {
    const std::lock_guard lock(mutex_);
    if (!offers_.emplace(offer.id, nullptr).second) {
      throw Error(ErrorCode::kInvalidArgument, "cuda_ipc: offer " + std::to_string(offer.id) + " is there already");
    }
  }
  std::shared_ptr<OfferInArena> offered;
  try {
    offered = PutIntoArena(offer, arena_, copy_in_);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    offers_.erase(offer.id);
    throw;
  }
  const std::lock_guard lock(mutex_);
  offers_[offer.id] = std::move(offered);
}

void Offers::Remove(std::uint64_t offer_id) {
  std::shared_ptr<OfferInArena> offered;
  {
    const std::lock_guard lock(mutex_);
    const auto found = offers_.find(offer_id);
    if (found == offers_.end() || found->second == nullptr) return;
    offered = std::move(found->second);
    offered->removed = true;
    offers_.erase(found);
  }
  try {
    copy_in_.Await(offered->copied, offer_id);
  } catch (const Error& error) {
    log::error("cuda_ipc: offer {} is removed, which the device did not copy in: {}", offer_id, error.what());
  }
}

std::shared_ptr<OfferInArena> Offers::Find(std::uint64_t offer_id) const {
  const std::lock_guard lock(mutex_);
  const auto found = offers_.find(offer_id);
  if (found == offers_.end() || found->second == nullptr) {
    throw Error(ErrorCode::kNotFound, "offer " + std::to_string(offer_id) + " is not there");
  }
  return found->second;
}

}  // namespace layercast::cuda_ipc_channel
