#include "trainer_side/durable/durable_versions.h"

#include <exception>
#include <filesystem>
#include <span>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "src/base/log.h"
#include "src/base/since_1970.h"
#include "src/base/threads/thread_name.h"

namespace layercast {

DurableVersions::DurableVersions(const StoreOptions& options, DeviceBytes& device, FailPoints& failpoints)
    : device_(device),
      writer_(StoreFolder::Make(std::filesystem::absolute(options.path), failpoints),
              {.versions = options.retained_versions, .bytes = options.retained_bytes}, failpoints) {
  Sweep(store());  // what a publisher left that was killed
}

void DurableVersions::End() {
  std::unique_lock lock(mutex_);
  if (!thread_.joinable()) return;
  if (!items_.empty()) log::info("{}: versions are written before the publisher ends", store().folder().ToString());
  changed_.wait_for(lock, kLongestEnd, [this] { return items_.empty(); });
  std::jthread thread = std::move(thread_);
  lock.unlock();
  thread.request_stop();
  thread.join();
  lock.lock();
  for (const Item& item : std::exchange(items_, {})) Become(*item.version, Durability::kLeftOut);
}

void DurableVersions::Put(const std::shared_ptr<OfferedVersion>& version) {
  const std::lock_guard lock(mutex_);
  Forget();
  known_[version.get()] = {version, Durability::kWaiting};
  items_.push_back({version, MillisecondsSince1970()});
  if (!thread_.joinable()) thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
  changed_.notify_all();
}

void DurableVersions::Become(const OfferedVersion& version, Durability became) {
  if (const auto known = known_.find(&version); known != known_.end()) known->second.second = became;
  changed_.notify_all();
}

void DurableVersions::NoteStored(const std::shared_ptr<OfferedVersion>& version) {
  const std::lock_guard lock(mutex_);
  known_[version.get()] = {version, Durability::kStored};
}

void DurableVersions::Forget() {
  std::erase_if(known_, [](const auto& one) { return one.second.first.expired(); });
}

Durability DurableVersions::Of(const OfferedVersion& version) const {
  const std::lock_guard lock(mutex_);
  const auto found = known_.find(&version);
  return found == known_.end() ? Durability::kLeftOut : found->second.second;
}

bool DurableVersions::Wait(const OfferedVersion& version, Deadline deadline) const {
  std::unique_lock lock(mutex_);
  const auto found = known_.find(&version);
  if (found == known_.end()) return false;
  changed_.wait_until(lock, deadline.at(), [&] { return found->second.second != Durability::kWaiting; });
  return found->second.second == Durability::kStored;
}

void DurableVersions::Run(const std::stop_token& stop) {
  NameThisThread("lc-store");
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [this] { return !items_.empty(); }) && !stop.stop_requested()) {
    const Item item = items_.front();
    lock.unlock();
    const Durability became = Write(item, stop);
    lock.lock();
    items_.pop_front();
    Become(*item.version, became);
  }
}

Durability DurableVersions::Write(const Item& item, const std::stop_token& stop) {
  const VersionHold hold(item.version, VersionUse::kStore);
  const OfferedVersion& offered = *item.version;
  const Version& version = offered.manifest().version();
  try {
    if (offered.retired()) {  // else its memory stays for as long as it is held
      throw Error(ErrorCode::kFailedPrecondition, "it was evicted or withdrawn before its turn");
    }
    std::vector<std::byte> host;
    const BytesOfTensor bytes = [&](std::uint32_t tensor) -> std::span<const std::byte> {
      const OfferedTensor& from = offered.offer().tensors[tensor];
      const auto count = static_cast<std::size_t>(from.bytes);
      if (offered.offer().device.kind == Device::Kind::kHost) return {from.data, count};
      host.resize(count);
      device_.ToHost(offered.offer().device, from.data, count, host.data());
      return host;
    };
    writer_.Write({.manifest = offered.manifest(),
                   .run = offered.provenance().run,
                   .config = offered.provenance().config,
                   .published_ms = item.published_ms},
                  bytes, stop);
    log::info("{} has {}", store().folder().ToString(), version.ToString());
    return Durability::kStored;
  } catch (const std::exception& error) {
    log::warn("{} is not in {}: {}", version.ToString(), store().folder().ToString(), error.what());
    return Durability::kLeftOut;
  }
}

}  // namespace layercast
