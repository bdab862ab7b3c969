// Loads NCCL at run time: nothing links it, so that a program starts without it.
#pragma once

#include <memory>
#include <string>

#include "src/transport/nccl/wire/nccl_library.h"

namespace layercast::nccl_channel {

// The first version in which one thread may drive several communicators that do not block. In earlier ones, the thread
// that NCCL starts for a group of such a communicator works on data of the caller's thread, and the caller's next
// group, of another communicator, overwrites these data at the same time.
inline constexpr int kOldestNccl = NCCL_VERSION(2, 28, 3);

// The library to load: "libnccl.so.2", or what LAYERCAST_NCCL_LIBRARY names.
std::string NcclPath();

// Throws kUnsupported, naming `path`, if there is no such library, it lacks a function, or it is older than
// kOldestNccl. The library stays loaded until the process ends, because NCCL's own threads may outlive every
// communicator.
std::unique_ptr<NcclLibrary> LoadNccl(const std::string& path);

}  // namespace layercast::nccl_channel
