#include "trainer_side/durable/durable_versions.h"

#include <algorithm>
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
namespace {

// A stream's bytes are there once.
std::span<const std::byte> WrittenOnce(std::uint32_t /*tensor*/) {
  throw Error(ErrorCode::kUnavailable, "what was written of the stream has gone, so slowly did it come");
}

}  // namespace

DurableVersions::DurableVersions(const StoreOptions& options, DeviceBytes& device, FailPoints& failpoints)
    : limits_({.versions = options.retained_versions, .bytes = options.retained_bytes}),
      failpoints_(failpoints),
      device_(device),
      writer_(StoreFolder::Make(std::filesystem::absolute(options.path), failpoints), limits_, failpoints) {
  Sweep(store());  // what a publisher left that was killed
}

void DurableVersions::End() {
  std::unique_lock lock(mutex_);
  ended_ = true;
  for (auto& [version, known] : known_) {  // those that nobody has walked
    if (known.stream != nullptr && known.durability == Durability::kWaiting) known.durability = Durability::kLeftOut;
  }
  if (!thread_.joinable()) return changed_.notify_all();
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
  known_[version.get()] = {.version = version};
  Push({.version = version, .published_ms = MillisecondsSince1970()});
}

std::shared_ptr<StoredStream> DurableVersions::Stream(const Manifest& manifest, const Provenance& provenance,
                                                      WorkerPool& pool) {
  VersionRecord record{.manifest = manifest,
                       .run = provenance.run,
                       .config = provenance.config,
                       .published_ms = MillisecondsSince1970()};
  const auto made = std::make_shared<std::weak_ptr<StoredStream>>();
  auto stream = std::make_shared<StoredStream>(
      std::move(record),
      StoredStream::Parts{.writer = std::make_unique<StoreWriter>(store().folder(), limits_, failpoints_),
                          .device = device_,
                          .pool = pool,
                          .on_whole = [self = weak_from_this(), made](VersionRecord whole) {
                            const std::shared_ptr<DurableVersions> open = self.lock();
                            if (open != nullptr) open->PutStreamed(made->lock().get(), std::move(whole));
                          }});
  *made = stream;
  return stream;
}

void DurableVersions::Await(const std::shared_ptr<OfferedVersion>& version, const StoredStream* stream) {
  const std::lock_guard lock(mutex_);
  Forget();
  known_[version.get()] = {.version = version, .stream = stream};
}

void DurableVersions::PutStreamed(const StoredStream* stream, VersionRecord record) {
  const std::lock_guard lock(mutex_);
  const auto known = std::ranges::find_if(known_, [&](const auto& one) { return one.second.stream == stream; });
  if (ended_ || known == known_.end()) return;
  std::shared_ptr<OfferedVersion> version = known->second.version.lock();
  if (version == nullptr) return;
  Push({.version = std::move(version), .streamed = std::move(record)});
}

void DurableVersions::Push(Item item) {
  items_.push_back(std::move(item));
  if (!thread_.joinable()) thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
  changed_.notify_all();
}

void DurableVersions::Become(const OfferedVersion& version, Durability became) {
  if (const auto known = known_.find(&version); known != known_.end()) known->second.durability = became;
  changed_.notify_all();
}

void DurableVersions::NoteStored(const std::shared_ptr<OfferedVersion>& version) {
  const std::lock_guard lock(mutex_);
  known_[version.get()] = {.version = version, .durability = Durability::kStored};
}

void DurableVersions::Forget() {
  std::erase_if(known_, [](const auto& one) { return one.second.version.expired(); });
}

Durability DurableVersions::Of(const OfferedVersion& version) const {
  const std::lock_guard lock(mutex_);
  const auto found = known_.find(&version);
  return found == known_.end() ? Durability::kLeftOut : found->second.durability;
}

bool DurableVersions::Wait(const OfferedVersion& version, Deadline deadline) const {
  std::unique_lock lock(mutex_);
  const auto found = known_.find(&version);
  if (found == known_.end()) return false;
  changed_.wait_until(lock, deadline.at(), [&] { return found->second.durability != Durability::kWaiting; });
  return found->second.durability == Durability::kStored;
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
  const Version& version = item.version->manifest().version();
  try {
    if (item.streamed) {
      writer_.Write(*item.streamed, &WrittenOnce, stop);
    } else {
      WriteSnapshot(item, stop);
    }
    log::info("{} has {}", store().folder().ToString(), version.ToString());
    return Durability::kStored;
  } catch (const std::exception& error) {
    log::warn("{} is not in {}: {}", version.ToString(), store().folder().ToString(), error.what());
    return Durability::kLeftOut;
  }
}

void DurableVersions::WriteSnapshot(const Item& item, const std::stop_token& stop) {
  const VersionHold hold(item.version, VersionUse::kStore);
  const OfferedVersion& offered = *item.version;
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
}

}  // namespace layercast
