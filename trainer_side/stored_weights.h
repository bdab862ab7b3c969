// What a store has of a version, as weights that a publisher offers again after its restart. Used by the publisher.
#pragma once

#include "layercast/publisher.h"
#include "src/store/version_store.h"

namespace layercast {

// A walk reads the objects, each when its turn comes. Whoever takes them compares digests with the record's.
Weights WeightsOf(const StoreFolder& folder, const VersionRecord& record);

}  // namespace layercast
