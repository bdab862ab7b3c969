// All receivers of an offering end, in fleets: one shared fleet of the size that the publisher was told, and a fleet of
// its own for each receiver that found no place there, or that the shared fleet went on without, until it can join
// that. Part of NcclOfferingEnd.
#pragma once

#include <cstddef>
#include <list>

#include "src/transport/nccl/fleet/fleet.h"

namespace layercast::nccl_channel {

// Resource; one thread only. Outlives the receivers, each of which leaves when it is destroyed.
class Fleets {
 public:
  Fleets(const FleetContext& context, std::size_t size) : context_(context) { fleets_.emplace_back(context_, size); }
  Fleets(const Fleets&) = delete;
  Fleets& operator=(const Fleets&) = delete;

  void Join(Receiver& receiver);
  void Leave(const Receiver& receiver);
  // True when something moved.
  bool Progress();
  Attention attention() const;

 private:
  Fleet& shared() { return fleets_.front(); }
  void LetReturn(Fleet& own);

  FleetContext context_;
  std::list<Fleet> fleets_;  // the first is the shared one, the others have one member each
};

}  // namespace layercast::nccl_channel
