// What malloc keeps of what a rank has freed. Used by the rank's process.
#pragma once

namespace layercast {

// Gives much of it back to the system; of a little, nothing.
void GiveFreedMemoryBack();

}  // namespace layercast
