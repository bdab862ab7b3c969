// The places of one engine's captured buffers: host memory, and a device if some of the buffers are there. Used by
// committers and the undo log.
#pragma once

#include <memory>
#include <vector>

#include "engine_side/reload/commit/committer.h"
#include "engine_side/reload/commit/place.h"

namespace layercast {

// Resource, as Place is. What it borrows must outlive it.
class Places {
 public:
  explicit Places(const CommitParts& parts) {
    if (parts.device != nullptr) all_.push_back(MakeDevicePlace(*parts.device));
    all_.push_back(MakeHostPlace(parts.pool, parts.kept_memory, parts.layer_memory));
  }

  // In the order in which to ask for work: while a device does its own, the host does the rest.
  const std::vector<std::unique_ptr<Place>>& all() const { return all_; }
  // Where layers are processed: on the device, if there is one.
  Place& work() const { return *all_.front(); }
  Place& host() const { return *all_.back(); }

 private:
  std::vector<std::unique_ptr<Place>> all_;
};

}  // namespace layercast
