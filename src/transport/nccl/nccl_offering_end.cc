#include "src/transport/nccl/nccl_offering_end.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "src/transport/device/device_tick.h"
#include "src/transport/nccl/receiver.h"
#include "src/transport/receivers.h"

namespace layercast::nccl_channel {
namespace {

constexpr std::size_t kMaxReceivers = 64;  // each has 16 MiB of the device's memory, and of the host's
constexpr int kRoundsAtOnce = 16;          // of moving pieces, between two looks at the sockets
constexpr std::chrono::milliseconds kTick{1000};

// Moves every receiver's pieces on, in turn: nobody's slowness is another's.
void Serve(Receivers<Receiver, ReceiverContext>& receivers, const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    bool moved = false;
    for (int round = 0; round < kRoundsAtOnce && receivers.Progress(); ++round) moved = true;
    const bool busy = std::ranges::any_of(receivers.all(), &Receiver::busy);
    receivers.TakeMessages(moved ? std::chrono::microseconds(0) : busy ? kDeviceTick : kTick);
  }
}

}  // namespace

NcclOfferingEnd::NcclOfferingEnd(NcclParts parts, const std::string& bind_host)
    : parts_(std::move(parts)),
      book_("nccl", wake_),
      listener_(Listen(bind_host, address_)),
      service_("nccl", "lc-nccl", wake_, [this](const std::stop_token& stop) {
        const ReceiverContext context{*parts_.library, *parts_.device, address_.key, book_, failpoints_};
        Receivers<Receiver, ReceiverContext> receivers("nccl", std::move(listener_), context, wake_, kMaxReceivers);
        Serve(receivers, stop);
      }) {}

void NcclOfferingEnd::Remove(std::uint64_t offer_id) {
  // What reads the offer's memory are copies on our own device, which wait for no receiver.
  book_.Remove(offer_id, [this](const std::shared_ptr<Offered>& /*offered*/) { wake_.Wake(); });
}

}  // namespace layercast::nccl_channel
