#include "trainer_side/folder_orders.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "layercast/error.h"
#include "src/base/as_error.h"
#include "src/base/log.h"
#include "src/base/threads/thread_name.h"
#include "src/base/utf8.h"

namespace layercast {
namespace {

constexpr std::chrono::milliseconds kLook{200};  // how often what is read is looked at

// Without its last "/", behind which there would be an empty component.
std::filesystem::path Folder(const std::filesystem::path& path) {
  return path.has_filename() || !path.has_relative_path() ? path : path.parent_path();
}

bool LiesIn(const std::filesystem::path& path, const std::filesystem::path& folder) {
  return std::ranges::mismatch(folder, path).in1 == folder.end();
}

}  // namespace

FolderOrders::FolderOrders(const std::vector<std::string>& allowed, Publish publish, std::function<bool()> free)
    : publish_(std::move(publish)), free_(std::move(free)) {
  for (const std::string& path : allowed) {
    std::error_code why;
    allowed_.push_back(Folder(std::filesystem::canonical(path, why)));
    if (why) throw Error(ErrorCode::kInvalidArgument, "allow_paths: " + Quote(path) + ": " + why.message());
  }
}

void FolderOrders::Put(Order order) {
  const std::lock_guard lock(mutex_);
  if (allowed_.empty()) {
    throw Error(ErrorCode::kUnsupported, "this publisher takes no folders: it was started without allow_paths");
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
    folder.path = Allowed(order.path);
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

std::string FolderOrders::Allowed(const std::string& path) const {
  std::error_code why;
  const std::filesystem::path folder = Folder(std::filesystem::canonical(path, why));
  const auto holds = [&](const std::filesystem::path& one) { return LiesIn(folder, one); };
  // Whoever may not see a folder does not learn whether it is there.
  if (!why && std::filesystem::path(path).is_absolute() && std::ranges::any_of(allowed_, holds)) return folder.string();
  std::string all;
  for (const std::filesystem::path& one : allowed_) all += (all.empty() ? "" : ", ") + Quote(one.string());
  throw Error(ErrorCode::kInvalidArgument,
              "expected the absolute path of something that is in " + all + ", got " + Quote(path));
}

}  // namespace layercast
