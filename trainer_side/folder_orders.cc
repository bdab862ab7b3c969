#include "trainer_side/folder_orders.h"

#include <utility>

#include "layercast/error.h"
#include "src/base/as_error.h"
#include "src/base/log.h"
#include "src/base/threads/thread_name.h"
#include "src/base/utf8.h"

namespace layercast {
namespace {

constexpr std::chrono::milliseconds kLook{200};  // how often what is read is looked at

}  // namespace

FolderOrders::FolderOrders(const std::vector<std::string>& allowed, Publish publish, std::function<bool()> free)
    : allowed_(allowed, "allow_paths"), publish_(std::move(publish)), free_(std::move(free)) {}

void FolderOrders::Put(Order order) {
  const std::lock_guard lock(mutex_);
  if (allowed_.empty()) {
    throw Error(ErrorCode::kPermissionDenied, "this publisher takes no folders: it was started without allow_paths");
  }
  orders_.push_back(std::move(order));
  Start();
}

void FolderOrders::Free() {
  const std::lock_guard lock(mutex_);
  frees_ = true;
  Start();
}

void FolderOrders::Start() {
  if (!stopped_ && !thread_.joinable()) thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
  changed_.notify_all();
}

std::size_t FolderOrders::waiting() const {
  const std::lock_guard lock(mutex_);
  return orders_.size();
}

void FolderOrders::Stop() {
  std::jthread thread;
  {
    const std::lock_guard lock(mutex_);
    thread = std::move(thread_);
    stopped_ = true;
  }
  if (!thread.joinable()) return;
  thread.request_stop();
  thread.join();
}

void FolderOrders::Run(const std::stop_token& stop) {
  NameThisThread("lc-orders");
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    if (frees_ && orders_.empty()) {
      lock.unlock();
      const bool more = free_();
      lock.lock();
      if (more) changed_.wait_for(lock, stop, kLook, [this] { return !orders_.empty(); });
      frees_ = more;
      continue;
    }
    if (!changed_.wait(lock, stop, [this] { return frees_ || !orders_.empty(); })) return;
    if (orders_.empty()) continue;
    const Order order = std::move(orders_.front());
    orders_.pop_front();
    lock.unlock();
    order.answer(Answer(order.folder));
    lock.lock();
  }
}

wire::Message FolderOrders::Answer(const FolderOrder& order) const {
  try {
    FolderOrder folder = order;
    folder.path = allowed_.ToRead(order.path);
    const PublishedFolder published = publish_(folder);
    const Version& version = published.version;
    return wire::PublishedFolder{version.lineage, version.step, version.digest,
                                 static_cast<std::uint32_t>(published.tensors), published.bytes};
  } catch (const std::exception& error) {
    const Error why = AsError(error);
    log::warn("publishing {}, as was ordered: {}", Quote(order.path), why.what());
    return wire::Refused{why.code(), why.what()};
  }
}

}  // namespace layercast
