// The file in which the version that a rank has staged outlives its process. Used by the rank's process.
#pragma once

#include "layercast/version.h"

namespace layercast {

// Throws kResourceExhausted if there is no room.
void WriteVersion(int fd, const Version& version);
Version ReadVersion(int fd);

}  // namespace layercast
