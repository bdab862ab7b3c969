#include "src/transport/all/transports.h"

#include <algorithm>

#include "layercast/error.h"
#include "src/transport/all/channel_names.h"
#include "src/transport/inproc/inproc_transport.h"
#include "src/transport/shm/shm_transport.h"
#include "src/transport/zmq/zmq_transport.h"
#if LAYERCAST_HAVE_CUDA
#include "src/transport/cuda_ipc/cuda_ipc_transport.h"
#endif
#if LAYERCAST_HAVE_NCCL
#include "src/transport/nccl/nccl_transport.h"
#endif
#if LAYERCAST_HAVE_UCX
#include "src/transport/ucx/ucx_transport.h"
#endif

namespace layercast {

std::vector<std::unique_ptr<Transport>> AllTransports([[maybe_unused]] std::optional<int> cuda_device) {
  std::vector<std::unique_ptr<Transport>> transports;
  transports.push_back(MakeInprocTransport());
  transports.push_back(MakeShmTransport());
#if LAYERCAST_HAVE_UCX
  transports.push_back(MakeUcxTransport());
#endif
#if LAYERCAST_HAVE_CUDA
  transports.push_back(MakeCudaIpcTransport(cuda_device));
#endif
#if LAYERCAST_HAVE_NCCL
  transports.push_back(MakeNcclTransport(cuda_device));
#endif
  transports.push_back(MakeZmqTransport());
  return transports;
}

std::vector<std::unique_ptr<Transport>> TransportsNamed(std::span<const std::string> names) {
  std::vector<std::unique_ptr<Transport>> transports = AllTransports();
  for (const std::string& name : names) {
    const auto found = std::ranges::find(transports, name, &Transport::name);
    if (found == transports.end()) ThrowNoChannel(name);
    const std::string why_not = (*found)->WhyNotHere();
    if (!why_not.empty())
      throw Error(ErrorCode::kUnsupported, "channel '" + name + "' cannot be used here: " + why_not);
  }
  std::erase_if(transports, [&](const auto& transport) {
    return names.empty() ? !transport->OfferedUnasked() || !transport->WhyNotHere().empty()
                         : std::ranges::find(names, transport->name()) == names.end();
  });
  return transports;
}

std::span<const ChannelName> ChannelNames() {
  constexpr std::string_view kNoUcx = "UCX, libucx-dev, was not found, or switched off, when it was configured";
  constexpr std::string_view kNoCuda = "CUDA was not found, or switched off, when it was configured";
  constexpr std::string_view kNoNccl = "nccl.h of the CUDA toolkit was not found when it was configured";
  static constexpr ChannelName kNames[] = {
      {.name = "inproc", .leaves_the_process = false},
      {.name = "shm"},
      {.name = "ucx", .lacking = LAYERCAST_HAVE_UCX ? "" : kNoUcx},
      {.name = "cuda_ipc", .lacking = LAYERCAST_HAVE_CUDA ? "" : kNoCuda},
      {.name = "nccl",
       .lacking = LAYERCAST_HAVE_NCCL   ? ""
                  : LAYERCAST_HAVE_CUDA ? kNoNccl
                                        : kNoCuda},
      {.name = "zmq"},
  };
  return kNames;
}

void ThrowNoChannel(const std::string& name) {
  std::string why, names;
  for (const ChannelName& channel : ChannelNames()) {
    if (channel.lacking.empty()) {
      names += (names.empty() ? "" : ", ") + std::string(channel.name);
    } else if (channel.name == name) {
      why = " (" + std::string(channel.lacking) + ")";
    }
  }
  throw Error(ErrorCode::kUnsupported, "this build has no channel '" + name + "'" + why + ", it has " + names);
}

}  // namespace layercast
