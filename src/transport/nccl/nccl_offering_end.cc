#include "src/transport/nccl/nccl_offering_end.h"

#include <chrono>
#include <string>
#include <utility>

#include "layercast/error.h"
#include "src/device/device_tick.h"
#include "src/transport/channel/receivers.h"
#include "src/transport/nccl/fleet/fleets.h"
#include "src/transport/nccl/fleet/nccl_receiver.h"

namespace layercast::nccl_channel {
namespace {

constexpr std::size_t kMaxReceivers = 64;  // each may have 128 MiB of the device's memory, and of the host's
constexpr int kRoundsAtOnce = 16;          // of moving pieces, between two looks at the sockets
constexpr std::chrono::milliseconds kClockTick{2};
constexpr std::chrono::milliseconds kTick{1000};

std::size_t CheckedSize(std::size_t fleet) {
  if (1 <= fleet && fleet <= kMaxFleet) return fleet;
  throw Error(ErrorCode::kInvalidArgument,
              "nccl: a fleet of " + std::to_string(fleet) + " receivers, expected 1 to " + std::to_string(kMaxFleet));
}

std::chrono::microseconds TickOf(Attention attention) {
  switch (attention) {
    case Attention::kDevice: return kDeviceTick;
    case Attention::kClock: return kClockTick;
    default: return kTick;
  }
}

// Moves every fleet's pieces on, in turn, so that a slow fleet does not hold up others.
void Serve(Receivers<Receiver, ReceiverContext>& receivers, Fleets& fleets, const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    bool moved = false;
    for (int round = 0; round < kRoundsAtOnce && fleets.Progress(); ++round) moved = true;
    receivers.TakeMessages(moved ? std::chrono::microseconds(0) : TickOf(fleets.attention()));
  }
}

}  // namespace

NcclOfferingEnd::NcclOfferingEnd(NcclParts parts, const OfferingOptions& options)
    : parts_(std::move(parts)),
      book_("nccl", wake_),
      listener_(Listen(options.bind_host, address_)),
      service_("nccl", "lc-nccl", wake_, [this, size = CheckedSize(options.fleet_size)](const std::stop_token& stop) {
        Fleets fleets({*parts_.library, *parts_.device, book_, parts_.patience, parts_.piece_bytes}, size);
        const ReceiverContext context{*parts_.library, *parts_.device, invitations_, book_, failpoints_, fleets};
        Receivers<Receiver, ReceiverContext> receivers("nccl", std::move(listener_), context, wake_, kMaxReceivers);
        Serve(receivers, fleets, stop);
      }) {}

std::string NcclOfferingEnd::address() const {
  ControlAddress told = address_;
  told.key = invitations_.Invite();
  return told.Text();
}

void NcclOfferingEnd::TakeBack(const std::string& address) {
  invitations_.TakeBack(KeyOf(address));
  wake_.Ring();
}

}  // namespace layercast::nccl_channel
