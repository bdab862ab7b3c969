// A durable store: a folder, perhaps of a shared file system, in which a publisher's versions outlive it. Values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace layercast {

struct StoreOptions {
  std::string path{};                  // of its folder, which is made if it is not there; empty: there is no store
  std::size_t retained_versions = 10;  // of a lineage; older ones that are not pinned there are evicted. 1 or more
  // Older versions of the lineage are evicted while the store's objects take more bytes than that, but for the newest
  // and those that are pinned. 0: no bound.
  std::uint64_t retained_bytes = 0;
};

// Where a version of a publisher with a store is.
enum class Durability : std::uint8_t {
  kNone,     // the publisher has no store
  kWaiting,  // it is yet to be written
  kStored,   // it outlives the publisher
  kLeftOut,  // it was not written, for a reason that the publisher's log has
};

}  // namespace layercast
