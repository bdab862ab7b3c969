#include "src/transport/ucx/ucx_offering_end.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "layercast/error.h"
#include "src/base/log.h"
#include "src/transport/channel/receivers.h"
#include "src/transport/ucx/ucx_receiver.h"

namespace layercast::ucx_channel {
namespace {

constexpr std::size_t kMaxReceivers = 256;
constexpr int kRoundsAtOnce = 16;  // of moving bytes, between two looks at the sockets
constexpr std::chrono::milliseconds kTick{1000};

// Serves every receiver a few pieces at a time, in turn, so that a slow one does not hold up others. One thread only.
class Service {
 public:
  Service(Receivers<Receiver, ReceiverContext>& receivers, OfferBook& book) : receivers_(receivers), book_(book) {}
  void Run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      bool moved = false;
      for (int round = 0; round < kRoundsAtOnce && receivers_.Progress(); ++round) moved = true;
      const bool idle = !moved && !SpinAll() && ArmAll();
      receivers_.TakeMessages(idle ? kTick : std::chrono::milliseconds(0), LinksToWaitFor());
      CutOverdue();
    }
  }

 private:
  bool SpinAll() {
    const bool worth = std::ranges::any_of(receivers_.all(), &Receiver::spins);
    return worth && Spin(Lanes::kSharedMemory).Until([this] { return receivers_.Progress(); });
  }

  bool ArmAll() {
    bool all = true;
    receivers_.ForEach([&](Receiver& receiver) { all = all && receiver.Arm(); });
    return all;
  }

  std::vector<pollfd> LinksToWaitFor() const {
    std::vector<pollfd> items;
    for (const Receiver& receiver : receivers_.all()) {
      items.push_back({receiver.wait_fd(), POLLIN, 0});  // poll ignores negative descriptors
    }
    return items;
  }

  void CutOverdue() {
    if (!book_.TakeOverdue()) return;
    receivers_.ForEach([](Receiver& receiver) {
      if (!receiver.HoldsOverdue()) return;
      receiver.Refuse({0, ErrorCode::kNotFound, "the offer was removed while it was read"});
      throw Error(ErrorCode::kUnavailable, "it stopped reading");
    });
  }

  Receivers<Receiver, ReceiverContext>& receivers_;
  OfferBook& book_;
};

std::unique_ptr<ReadableOffers> MakeReadable(const OneSided* one_sided) {
  if (one_sided == nullptr || !one_sided->Here()) return nullptr;
  try {
    return std::make_unique<ReadableOffers>(one_sided->MakeMemory());
  } catch (const Error& error) {
    log::warn("ucx: receivers get messages, for nothing can be read one-sided: {}", error.what());
    return nullptr;
  }
}

}  // namespace

UcxOfferingEnd::UcxOfferingEnd(const std::string& bind_host, const UcxParts& parts)
    : book_("ucx", wake_),
      readable_(MakeReadable(parts.one_sided.get())),
      listener_(Listen(bind_host, address_)),
      service_("ucx", "lc-ucx", wake_, [this, anywhere = parts.reads_anywhere](const std::stop_token& stop) {
        const ReceiverContext context{invitations_, book_, failpoints_, readable_.get(), anywhere};
        Receivers<Receiver, ReceiverContext> receivers("ucx", std::move(listener_), context, wake_, kMaxReceivers);
        Service(receivers, book_).Run(stop);
      }) {}

void UcxOfferingEnd::Remove(std::uint64_t offer_id) {
  const std::shared_ptr<Offered> removed = book_.Remove(offer_id);
  if (removed != nullptr && readable_ != nullptr) readable_->Forget(*removed);
}

std::string UcxOfferingEnd::address() const {
  ControlAddress told = address_;
  told.key = invitations_.Invite();
  return told.Text();
}

void UcxOfferingEnd::TakeBack(const std::string& address) {
  invitations_.TakeBack(KeyOf(address));
  wake_.Ring();
}

}  // namespace layercast::ucx_channel
