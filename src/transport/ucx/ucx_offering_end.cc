#include "src/transport/ucx/ucx_offering_end.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "layercast/error.h"
#include "src/base/log.h"
#include "src/base/thread_name.h"

namespace layercast::ucx_channel {
namespace {

constexpr std::size_t kMaxReceivers = 256;
constexpr int kRoundsAtOnce = 16;  // of moving bytes, between two looks at the sockets
constexpr std::chrono::milliseconds kTick{1000};

}  // namespace

void Overdue::Add(const std::shared_ptr<Offered>& offered) {
  const std::lock_guard lock(mutex_);
  offers_.push_back(offered);
}

std::vector<std::shared_ptr<Offered>> Overdue::Take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(offers_, {});
}

void Service::Run(const std::stop_token& stop) {
  NameThisThread("lc-ucx");
  while (!stop.stop_requested()) {
    bool moved = false;
    for (int round = 0; round < kRoundsAtOnce && ProgressAll(); ++round) moved = true;
    const bool idle = !moved && !SpinAll() && ArmAll();
    TakeMessages(idle ? kTick : std::chrono::milliseconds(0));
    CutOverdue();
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
      // Receivers come and go; only what breaks the protocol is worth a word.
      if (error.code() != ErrorCode::kUnavailable) log::warn("ucx: a receiver loses its connection: {}", error.what());
    }
    at = lost ? receivers_.erase(at) : std::next(at);
  }
}

bool Service::ProgressAll() {
  bool moved = false;
  ForEach([&](Receiver& receiver) { moved = receiver.Progress() || moved; });
  return moved;
}

bool Service::SpinAll() {
  const bool worth = std::ranges::any_of(receivers_, [](const Receiver& receiver) { return receiver.spins(); });
  return worth && Spin(Lanes::kSharedMemory).Until([this] { return ProgressAll(); });
}

bool Service::ArmAll() {
  return std::ranges::all_of(receivers_, [](Receiver& receiver) { return receiver.Arm(); });
}

void Service::TakeMessages(std::chrono::milliseconds timeout) {
  std::vector<pollfd> items = {{listener_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
  for (const Receiver& receiver : receivers_) {
    if (receiver.more()) timeout = std::chrono::milliseconds(0);
    const bool unsent = receiver.control().unsent() != 0;
    items.push_back({receiver.control().fd(), static_cast<short>(unsent ? POLLIN | POLLOUT : POLLIN), 0});
    items.push_back({receiver.link() != nullptr ? receiver.link()->fd() : -1, POLLIN, 0});
  }
  ::poll(items.data(), items.size(), static_cast<int>(timeout.count()));
  if (items[1].revents != 0) wake_.Clear();
  std::size_t item = 2;
  ForEach([&](Receiver& receiver) {
    const bool ready = items[item].revents != 0 || receiver.more();
    item += 2;
    if (ready) receiver.TakeMessages();
  });
  if (items[0].revents != 0) Accept();
}

void Service::Accept() {
  while (true) {
    UniqueFd connected(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!connected) return;
    if (receivers_.size() < kMaxReceivers) receivers_.emplace_back(std::move(connected), key_, book_, failpoints_);
  }
}

void Service::CutOverdue() {
  for (const std::shared_ptr<Offered>& offered : overdue_.Take()) {
    ForEach([&](Receiver& receiver) {
      if (!receiver.Holds(*offered)) return;
      receiver.Refuse({0, ErrorCode::kNotFound, "the offer was removed while it was read"});
      throw Error(ErrorCode::kUnavailable, "it stopped reading");
    });
  }
}

UcxOfferingEnd::UcxOfferingEnd(const std::string& bind_host) : book_("ucx", wake_) {
  ControlAddress address{.channel = "ucx"};
  address.key = RandomToken();
  UniqueFd listener = Listen(bind_host, address);
  address_ = address.Text();
  thread_ = std::jthread([this, key = address.key, moved = std::move(listener)](const std::stop_token& stop) mutable {
    Service service(std::move(moved), key, book_, overdue_, wake_, failpoints_);
    try {
      service.Run(stop);
    } catch (const std::exception& error) {
      log::error("ucx: the data channel ends: {}", error.what());
    }
  });
}

UcxOfferingEnd::~UcxOfferingEnd() {
  thread_.request_stop();
  wake_.Wake();
  thread_.join();
}

void UcxOfferingEnd::Remove(std::uint64_t offer_id) {
  book_.Remove(offer_id, [this](const std::shared_ptr<Offered>& offered) {
    overdue_.Add(offered);
    wake_.Wake();
  });
}

}  // namespace layercast::ucx_channel
