#include "src/transport/cuda_ipc/cuda_ipc_offering_end.h"

#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "src/device/device_tick.h"
#include "src/net/control_socket.h"
#include "src/net/local_socket.h"
#include "src/transport/channel/receivers.h"
#include "src/transport/cuda_ipc/cuda_ipc_receiver.h"

namespace layercast::cuda_ipc_channel {
namespace {

constexpr std::size_t kMaxReceivers = 256;
constexpr std::chrono::milliseconds kTick{500};  // how late it is noticed that a receiver does not let go

// Answers every receiver in turn.
void Serve(Receivers<Receiver, ReceiverContext>& receivers, CopyIn& copy_in, const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    receivers.Progress();
    // Copying in needs no attention by itself, but the sooner its end is noticed, the sooner receivers are told that
    // they need not wait for the event.
    const bool copying = !receivers.all().empty() && !copy_in.Idle();
    const bool waits = copying || std::ranges::any_of(receivers.all(), &Receiver::waits);
    receivers.TakeMessages(waits ? kDeviceTick : kTick);
  }
}

}  // namespace

CudaIpcOfferingEnd::CudaIpcOfferingEnd(CudaIpcParts parts)
    : parts_(std::move(parts)),
      arena_(*parts_.driver),
      copy_in_(*parts_.driver, *parts_.device),
      offers_(arena_, copy_in_),
      listener_(ListenLocally(SOCK_STREAM, name_)),
      service_("cuda_ipc", "lc-cuda-ipc", wake_, [this](const std::stop_token& stop) {
        const ReceiverContext context{parts_.driver->opens_its_own(), invitations_, copy_in_, offers_, failpoints_};
        Receivers<Receiver, ReceiverContext> receivers("cuda_ipc", std::move(listener_), context, wake_, kMaxReceivers);
        Serve(receivers, copy_in_, stop);
      }) {}

std::string CudaIpcOfferingEnd::address() const {
  return WithKey(std::string(kAddressPrefix) + name_, invitations_.Invite());
}

void CudaIpcOfferingEnd::TakeBack(const std::string& address) {
  invitations_.TakeBack(KeyOf(address));
  wake_.Ring();
}

void CudaIpcOfferingEnd::Add(const Offer& offer) {
  offers_.Add(offer);
  wake_.Ring();  // segments may have gone, of which receivers are told
}

void CudaIpcOfferingEnd::Remove(std::uint64_t offer_id) {
  offers_.Remove(offer_id);
  wake_.Ring();  // what waits to be granted is refused
}

}  // namespace layercast::cuda_ipc_channel
