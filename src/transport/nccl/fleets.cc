#include "src/transport/nccl/fleets.h"

#include <algorithm>
#include <iterator>
#include <vector>

namespace layercast::nccl_channel {

void Fleets::Join(Receiver& receiver) {
  Fleet& fleet = fleets_.front().HasPlaceFor(receiver) ? fleets_.front() : fleets_.emplace_back(context_, 1);
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
    const bool gone = fleet->empty() && fleet != fleets_.begin();
    fleet = gone ? fleets_.erase(fleet) : std::next(fleet);
  }
  return moved;
}

Attention Fleets::attention() const {
  Attention most = Attention::kNone;
  for (const Fleet& fleet : fleets_) most = std::max(most, fleet.attention());
  return most;
}

}  // namespace layercast::nccl_channel
