// All receivers of a publisher's end, in fleets: one of the size that the publisher was told, and each receiver beyond
// it, or that it went on without, in a fleet of its own, until there is a place for it.
#pragma once

#include <cstddef>
#include <list>

#include "src/transport/nccl/fleet.h"

namespace layercast::nccl_channel {

// Resource; one thread only. Outlives the receivers, each of which leaves as it ends.
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
  std::list<Fleet> fleets_;  // the first is that of the size, the others are of one
};

}  // namespace layercast::nccl_channel
