#include "src/transport/cuda_ipc/cuda_ipc_offering_end.h"

#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "src/base/log.h"
#include "src/base/thread_name.h"
#include "src/transport/device/device_tick.h"
#include "src/transport/local_socket.h"

namespace layercast::cuda_ipc_channel {
namespace {

constexpr std::size_t kMaxReceivers = 256;
constexpr std::chrono::milliseconds kTick{500};  // how late it is noticed that a receiver does not let go

}  // namespace

void Service::Run(const std::stop_token& stop) {
  NameThisThread("lc-cuda-ipc");
  while (!stop.stop_requested()) {
    ForEach([](Receiver& receiver) { receiver.Progress(); });
    // What is copied in needs nobody to look on, but receivers that may be told sooner that they need not wait.
    const bool copying = !receivers_.empty() && !context_.copy_in.Idle();
    TakeMessages(copying || std::ranges::any_of(receivers_, &Receiver::waits) ? kDeviceTick : kTick);
  }
}

template <typename Step>
void Service::ForEach(const Step& step) {
  for (auto at = receivers_.begin(); at != receivers_.end();) {
    bool lost = true;
    try {
      step(*at);
      lost = at->TooLate();
      if (lost) log::warn("cuda_ipc: a receiver that says nothing, or does not let go, loses its connection");
    } catch (const Error& error) {
      // Receivers come and go; only what breaks the protocol is worth a word.
      if (error.code() != ErrorCode::kUnavailable) {
        log::warn("cuda_ipc: a receiver loses its connection: {}", error.what());
      }
    }
    at = lost ? receivers_.erase(at) : std::next(at);
  }
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
  while (UniqueFd connected = AcceptLocally(listener_)) {
    if (receivers_.size() < kMaxReceivers) receivers_.emplace_back(std::move(connected), context_);
  }
}

CudaIpcOfferingEnd::CudaIpcOfferingEnd(CudaIpcParts parts)
    : parts_(std::move(parts)),
      arena_(*parts_.driver),
      copy_in_(*parts_.driver, *parts_.device),
      offers_(arena_, copy_in_) {
  UniqueFd listener = ListenLocally(SOCK_STREAM, name_);
  thread_ = std::jthread([this, moved = std::move(listener)](const std::stop_token& stop) mutable {
    Service service(std::move(moved), {parts_.driver->opens_its_own(), copy_in_, offers_, failpoints_}, wake_);
    try {
      service.Run(stop);
    } catch (const std::exception& error) {
      log::error("cuda_ipc: the data channel ends: {}", error.what());
    }
  });
}

CudaIpcOfferingEnd::~CudaIpcOfferingEnd() {
  thread_.request_stop();
  wake_.Wake();
  thread_.join();
}

std::string CudaIpcOfferingEnd::address() const { return std::string(kAddressPrefix) + name_; }

void CudaIpcOfferingEnd::Add(const Offer& offer) {
  offers_.Add(offer);
  wake_.Wake();  // segments may have gone
}

void CudaIpcOfferingEnd::Remove(std::uint64_t offer_id) {
  offers_.Remove(offer_id);
  wake_.Wake();  // what waits to be granted is refused
}

}  // namespace layercast::cuda_ipc_channel
