// NCCL as it is found at run time: nothing here links it, so that a program starts without.
#pragma once

#include <memory>
#include <string>

#include "src/transport/nccl/nccl_library.h"

namespace layercast::nccl_channel {

// The first in which one thread may drive several communicators that do not block. Before it, the thread that NCCL
// starts for such a group works on what belongs to the caller's thread, and the caller's next group, of another
// communicator, overwrites that under its hands.
inline constexpr int kOldestNccl = NCCL_VERSION(2, 28, 3);

// "libnccl.so.2", or what LAYERCAST_NCCL_LIBRARY names.
std::string NcclPath();

// Throws kUnsupported, naming `path`: there is no such library, it lacks a function, or is older than kOldestNccl. It
// stays loaded until the process ends: NCCL's own threads may outlive every communicator.
std::unique_ptr<NcclLibrary> LoadNccl(const std::string& path);

}  // namespace layercast::nccl_channel
