// Keeps the version that a rank has staged in a file that outlives the rank's process. Used by the rank process.
#pragma once

#include "layercast/version.h"

namespace layercast {

// Both throw, saying why, if the file cannot be written or read.
void WriteVersion(int fd, const Version& version);
Version ReadVersion(int fd);

}  // namespace layercast
