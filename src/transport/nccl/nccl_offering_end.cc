#include "src/transport/nccl/nccl_offering_end.h"

#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "src/base/log.h"
#include "src/base/thread_name.h"
#include "src/transport/nccl/device_tick.h"

namespace layercast::nccl_channel {
namespace {

constexpr std::size_t kMaxReceivers = 64;  // each has 16 MiB of the device's memory, and of the host's
constexpr int kRoundsAtOnce = 16;          // of moving pieces, between two looks at the sockets
constexpr std::chrono::milliseconds kTick{1000};

}  // namespace

void Service::Run(const std::stop_token& stop) {
  NameThisThread("lc-nccl");
  while (!stop.stop_requested()) {
    bool moved = false;
    for (int round = 0; round < kRoundsAtOnce && ProgressAll(); ++round) moved = true;
    const bool busy = std::ranges::any_of(receivers_, &Receiver::busy);
    TakeMessages(moved ? std::chrono::microseconds(0) : busy ? kDeviceTick : kTick);
  }
}

template <typename Step>
void Service::ForEach(const Step& step) {
  for (auto at = receivers_.begin(); at != receivers_.end();) {
    bool lost = true;
    try {
      step(*at);
      lost = at->TooLate();
    } catch (const Error& error) {
      // Receivers come and go, and end NCCL's part first; only what breaks the protocol is worth a word.
      if (error.code() != ErrorCode::kUnavailable) {
        log::warn("nccl: the receiver of epoch {} loses its connection: {}", at->number(), error.what());
      }
    }
    at = lost ? receivers_.erase(at) : std::next(at);
  }
}

bool Service::ProgressAll() {
  bool moved = false;
  ForEach([&](Receiver& receiver) { moved = receiver.Progress() || moved; });
  return moved;
}

void Service::TakeMessages(std::chrono::microseconds timeout) {
  std::vector<pollfd> items = {{listener_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
  for (const Receiver& receiver : receivers_) {
    if (receiver.more()) timeout = std::chrono::microseconds(0);
    const bool unsent = receiver.control().unsent() != 0;
    items.push_back({receiver.control().fd(), static_cast<short>(unsent ? POLLIN | POLLOUT : POLLIN), 0});
  }
  PollFor(items, timeout);
  if (items[1].revents != 0) wake_.Clear();
  std::size_t item = 2;
  ForEach([&](Receiver& receiver) {
    if (items[item++].revents != 0 || receiver.more()) receiver.TakeMessages();
  });
  if (items[0].revents != 0) Accept();
}

void Service::Accept() {
  while (true) {
    UniqueFd connected(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!connected) return;
    if (receivers_.size() < kMaxReceivers) receivers_.emplace_back(std::move(connected), context_, ++epochs_);
  }
}

NcclOfferingEnd::NcclOfferingEnd(NcclParts parts, const std::string& bind_host)
    : parts_(std::move(parts)), book_("nccl", wake_) {
  ControlAddress address{.channel = "nccl"};
  address.key = RandomToken();
  UniqueFd listener = Listen(bind_host, address);
  address_ = address.Text();
  thread_ = std::jthread([this, key = address.key, moved = std::move(listener)](const std::stop_token& stop) mutable {
    Service service(std::move(moved), {*parts_.library, *parts_.device, key, book_, failpoints_}, wake_);
    try {
      service.Run(stop);
    } catch (const std::exception& error) {
      log::error("nccl: the data channel ends: {}", error.what());
    }
  });
}

NcclOfferingEnd::~NcclOfferingEnd() {
  thread_.request_stop();
  wake_.Wake();
  thread_.join();
}

void NcclOfferingEnd::Remove(std::uint64_t offer_id) {
  // What reads the offer's memory are copies on our own device, which wait for no receiver.
  book_.Remove(offer_id, [this](const std::shared_ptr<Offered>& /*offered*/) { wake_.Wake(); });
}

}  // namespace layercast::nccl_channel
