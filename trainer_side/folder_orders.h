// Publishes folders for those who order it over the control link, one after the other, on a thread of its own; and
// frees there what was evicted by an order. Used by the publisher.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "layercast/version.h"
#include "src/base/paths/allowed_folders.h"
#include "src/session/offer/order_desk.h"
#include "src/wire/frames.h"

namespace layercast {

using FolderOrder = wire::PublishFolder;

// What has become of one. Value.
struct PublishedFolder {
  Version version;
  std::size_t tensors = 0;
  std::uint64_t bytes = 0;
};

// Resource; thread-safe. Its thread "lc-orders" starts with the first order.
class FolderOrders {
 public:
  struct Order {
    FolderOrder folder;
    VersionKeeper::Answer answer;
  };
  using Publish = std::function<PublishedFolder(const FolderOrder&)>;

  // Folders are published that lie in one of `allowed`, or are one. `publish` throws what an order is refused with;
  // `free` frees what nobody reads, and returns whether something is still read. Throws kInvalidArgument on a folder
  // that is not there.
  FolderOrders(const std::vector<std::string>& allowed, Publish publish, std::function<bool()> free);
  ~FolderOrders() { Stop(); }
  FolderOrders(const FolderOrders&) = delete;
  FolderOrders& operator=(const FolderOrders&) = delete;

  // Throws kPermissionDenied if no folder is allowed at all.
  void Put(Order order);
  // Frees what was evicted, now or when nobody reads it any more.
  void Free();
  // How many orders wait.
  std::size_t waiting() const;
  // Ends after the order at hand; those that wait are dropped.
  void Stop();

 private:
  void Start();  // under the lock
  void Run(const std::stop_token& stop);
  wire::Message Answer(const FolderOrder& order) const;

  const AllowedFolders allowed_;
  const Publish publish_;
  const std::function<bool()> free_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Order> orders_;  // guarded by mutex_
  bool stopped_ = false;      // guarded by mutex_
  bool frees_ = false;        // there may be something to free; guarded by mutex_
  std::jthread thread_;       // started under mutex_
};

}  // namespace layercast
