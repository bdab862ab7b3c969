#include "src/transport/nccl/fleet/fleets.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "src/base/log.h"

namespace layercast::nccl_channel {

void Fleets::Join(Receiver& receiver) {
  Fleet& fleet = shared().HasPlaceFor(receiver) ? shared() : fleets_.emplace_back(context_, 1);
  fleet.Join(receiver);
}

void Fleets::Leave(const Receiver& receiver) {
  for (Fleet& fleet : fleets_) fleet.Leave(receiver);
}

bool Fleets::Progress() {
  bool moved = false;
  for (auto fleet = fleets_.begin(); fleet != fleets_.end();) {
    moved = fleet->Progress() || moved;
    for (Receiver* const receiver : fleet->TakeApart()) fleets_.emplace_back(context_, 1).Join(*receiver);
    if (fleet != fleets_.begin()) LetReturn(*fleet);
    const bool gone = fleet->empty() && fleet != fleets_.begin();
    fleet = gone ? fleets_.erase(fleet) : std::next(fleet);
  }
  return moved;
}

// Moves receivers that rest from a fleet of their own to the shared one, if they may return. They take part in the
// epoch that is made for what is asked for next.
void Fleets::LetReturn(Fleet& own) {
  const std::vector<Receiver*> members = own.members();
  for (Receiver* const receiver : members) {
    if (!receiver->rests() || !receiver->standing().MayReturn() || !shared().HasPlaceFor(*receiver)) continue;
    log::info("nccl: receiver {} shares a communicator with others from its next request on", receiver->number());
    own.Leave(*receiver);
    shared().Join(*receiver);
  }
}

Attention Fleets::attention() const {
  Attention most = Attention::kNone;
  for (const Fleet& fleet : fleets_) most = std::max(most, fleet.attention());
  return most;
}

}  // namespace layercast::nccl_channel
