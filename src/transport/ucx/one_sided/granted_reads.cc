#include "src/transport/ucx/one_sided/granted_reads.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "layercast/error.h"

namespace layercast::ucx_channel {
namespace {

std::set<std::uint32_t> TensorsOf(const Reply& reply) {
  std::set<std::uint32_t> tensors;
  for (const Region& region : reply.regions) {
    if (region.num_bytes() != 0) tensors.insert(region.tensor);
  }
  return tensors;
}

std::size_t BytesOf(const GrantedTensor& granted) {
  return sizeof(granted.tensor) + sizeof(granted.place.address) + sizeof(std::uint16_t) + granted.place.key.size();
}

}  // namespace

GrantedReads::GrantedReads(OfferBook& book, ReadableOffers& offers, const Token& token)
    : book_(book),
      offers_(offers),
      token_(offers.memory().arena() != nullptr ? *offers.memory().arena() : host_, token.size()) {
  std::ranges::copy(token, token_.data());
  registered_token_ = offers_.memory().Register(token_.span());
  target_ = offers_.memory().MakeTarget();
}

GrantedReads::~GrantedReads() { target_.reset(); }  // while the offers are still in use

Welcome GrantedReads::Describe(const Token& token) const {
  return {kVersion,
          Lanes::kReads,
          token,
          target_->Address(),
          {reinterpret_cast<std::uintptr_t>(token_.data()), registered_token_->key()}};
}

bool GrantedReads::HoldOverdue() const {
  return std::ranges::any_of(granted_, [](const auto& granted) { return granted.second->overdue.load(); });
}

void GrantedReads::Grant(const Reply& reply, ControlSocket& control) {
  if (granted_.contains(reply.ticket)) {
    throw Error(ErrorCode::kCorrupt, "ticket " + std::to_string(reply.ticket) + " is under way already");
  }
  OfferUse use = book_.Begin(reply.offered);
  if (use == nullptr) throw Error(ErrorCode::kNotFound, "the offer was removed");
  granted_.emplace(reply.ticket, std::move(use));
  SendPlaces(reply, control);
}

void GrantedReads::SendPlaces(const Reply& reply, ControlSocket& control) {
  Granted granted{reply.ticket, false, {}};
  std::size_t bytes = 0;
  for (const std::uint32_t tensor : TensorsOf(reply)) {
    granted.tensors.push_back({tensor, offers_.PlaceOf(*reply.offered, tensor)});
    bytes += BytesOf(granted.tensors.back());
    if (bytes < kGrantedBytes) continue;
    control.Send(Encode(granted));
    granted.tensors.clear();
    bytes = 0;
  }
  granted.last = true;
  control.Send(Encode(granted));
}

void GrantedReads::Return(std::uint64_t ticket) {
  const auto found = granted_.find(ticket);
  if (found == granted_.end()) {
    throw Error(ErrorCode::kCorrupt, "READ of ticket " + std::to_string(ticket) + ", which was not granted");
  }
  granted_.erase(found);
}

}  // namespace layercast::ucx_channel
