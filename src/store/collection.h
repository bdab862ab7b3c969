// What a store keeps, and how the rest goes: versions are evicted by its limits, and objects that no version names are
// removed. Used by those who write to a store, and by `layercast versions --store`.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "src/store/version_store.h"

namespace layercast {

// What is kept of a lineage. Value.
struct StoreLimits {
  std::size_t versions = 10;  // the newest; those that are pinned do not count. 1 or more
  std::uint64_t bytes = 0;  // of objects of the whole store, beyond which older versions go but the newest; 0: no bound
};

// How long what nobody names any more stays: longer than a network's file system shows an old list, so that whoever
// found it in one, or wrote an object whose version is still to come, does not lose it.
inline constexpr std::chrono::seconds kStoreGrace{120};

// How long one rank's part of a version waits for those of the others.
inline constexpr std::chrono::hours kPartsWait{1};

// Evicts the oldest of a lineage's versions, as far as the limits ask for it.
void Trim(const VersionStore& store, const std::string& lineage, const StoreLimits& limits);

// Removes evicted versions that nobody reads, objects that no version and no part of one names, and unfinished files,
// once they are older than `grace`; and parts after kPartsWait. May run while others write and read, also in other
// processes and on other hosts.
void Sweep(const VersionStore& store, std::chrono::seconds grace = kStoreGrace);

}  // namespace layercast
