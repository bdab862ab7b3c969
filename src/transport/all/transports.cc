#include "src/transport/all/transports.h"

#include <algorithm>
#include <iterator>

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
namespace {

[[maybe_unused]] constexpr std::string_view kNoCuda = "CUDA was not found, or switched off, when it was configured";
[[maybe_unused]] constexpr std::string_view kNoNccl = "nccl.h of the CUDA toolkit was not found when it was configured";

constexpr ChannelName kChannels[] = {
    {.name = "inproc", .leaves_the_process = false, .make = [](auto, const Keys&) { return MakeInprocTransport(); }},
    {.name = "shm", .make = [](auto, const Keys&) { return MakeShmTransport(); }},
#if LAYERCAST_HAVE_UCX
    {.name = "ucx", .make = [](auto, const Keys&) { return MakeUcxTransport(); }},
#else
    {.name = "ucx", .lacking = "UCX, libucx-dev, was not found, or switched off, when it was configured"},
#endif
#if LAYERCAST_HAVE_CUDA
    {.name = "cuda_ipc", .make = [](auto device, const Keys&) { return MakeCudaIpcTransport(device); }},
#else
    {.name = "cuda_ipc", .lacking = kNoCuda},
#endif
#if LAYERCAST_HAVE_NCCL
    {.name = "nccl", .make = [](auto device, const Keys&) { return MakeNcclTransport(device); }},
#else
    {.name = "nccl", .lacking = LAYERCAST_HAVE_CUDA ? kNoNccl : kNoCuda},
#endif
    {.name = "zmq", .make = [](auto, const Keys& keys) { return MakeZmqTransport(keys); }},
};

}  // namespace

std::span<const ChannelName> ChannelNames() { return kChannels; }

bool StaysInTheProcess(std::string_view name) {
  const auto* const channel = std::ranges::find(kChannels, name, &ChannelName::name);
  return channel != std::end(kChannels) && !channel->leaves_the_process;
}

std::vector<std::unique_ptr<Transport>> AllTransports(std::optional<int> cuda_device, const Keys& keys) {
  std::vector<std::unique_ptr<Transport>> transports;
  for (const ChannelName& channel : kChannels) {
    if (channel.make != nullptr) transports.push_back(channel.make(cuda_device, keys));
  }
  return transports;
}

std::vector<std::unique_ptr<Transport>> TransportsNamed(std::span<const std::string> names, const Keys& keys) {
  std::vector<std::unique_ptr<Transport>> transports = AllTransports(std::nullopt, keys);
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

void ThrowNoChannel(const std::string& name) {
  std::string why, names;
  for (const ChannelName& channel : kChannels) {
    if (channel.lacking.empty()) {
      names += (names.empty() ? "" : ", ") + std::string(channel.name);
    } else if (channel.name == name) {
      why = " (" + std::string(channel.lacking) + ")";
    }
  }
  throw Error(ErrorCode::kUnsupported, "this build has no channel '" + name + "'" + why + ", it has " + names);
}

}  // namespace layercast
