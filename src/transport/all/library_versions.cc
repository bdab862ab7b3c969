#include "src/transport/all/library_versions.h"

#include <zmq.h>

#include "layercast/error.h"
#if LAYERCAST_HAVE_NCCL
#include "src/transport/nccl/wire/dynamic_nccl.h"
#endif
#if LAYERCAST_HAVE_UCX
#include <ucp/api/ucp.h>
#endif

namespace layercast {
namespace {

LibraryVersion Zmq() {
  int major = 0, minor = 0, patch = 0;
  ::zmq_version(&major, &minor, &patch);
  return {"zmq", "ZeroMQ", std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch), ""};
}

LibraryVersion Ucx() {
#if LAYERCAST_HAVE_UCX
  return {"ucx", "UCX", ::ucp_get_version_string(), ""};
#else
  return {"ucx", "UCX", "", "this build was made without it"};
#endif
}

LibraryVersion Nccl() {
#if LAYERCAST_HAVE_NCCL
  try {
    return {"nccl", "NCCL", nccl_channel::VersionText(nccl_channel::LoadNccl(nccl_channel::NcclPath())->version()), ""};
  } catch (const Error& error) {
    return {"nccl", "NCCL", "", error.what()};
  }
#else
  return {"nccl", "NCCL", "", "this build was made without it"};
#endif
}

}  // namespace

std::vector<LibraryVersion> ChannelLibraries() { return {Ucx(), Nccl(), Zmq()}; }

}  // namespace layercast
