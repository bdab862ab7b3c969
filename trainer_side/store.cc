#include "layercast/store/store.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "layercast/error.h"
#include "src/store/collection.h"
#include "src/store/version_store.h"

namespace layercast {
namespace {

VersionStore Open(const std::string& path) { return VersionStore(StoreFolder::Open(path)); }

VersionList ListOf(const VersionStore& store) {
  VersionList list;
  for (const StoredVersion& stored : store.List()) {
    list.memory_bytes += stored.added_bytes;
    list.versions.push_back({.version = stored.version(),
                             .run = stored.record.run,
                             .bytes = stored.record.manifest.total_bytes(),
                             .added_bytes = stored.added_bytes,
                             .published = std::chrono::system_clock::time_point(
                                 std::chrono::milliseconds(static_cast<std::int64_t>(stored.record.published_ms))),
                             .pinned = stored.pinned,
                             .shadowed = stored.shadowed,
                             .durability = Durability::kStored});
  }
  return list;
}

// The newest run's, if several have the same bytes at the same step.
StoredName NameOf(const VersionStore& store, const Version& version) {
  return store.Find(version.lineage, version.step, version.digest).name;
}

}  // namespace

VersionList Store::Versions() const { return ListOf(Open(path_)); }

VersionList Store::Pin(const Version& version, bool pin) const {
  const VersionStore store = Open(path_);
  store.Pin(NameOf(store, version), pin);
  return ListOf(store);
}

VersionList Store::Evict(const Version& version) const {
  const VersionStore store = Open(path_);
  store.Evict(NameOf(store, version));
  Sweep(store);
  return ListOf(store);
}

std::vector<CheckedVersion> Store::Check() const {
  WorkerPool pool(std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, 16));
  std::vector<CheckedVersion> all;
  for (VersionStore::Checked& checked : Open(path_).Check(pool)) {
    all.push_back({.version = std::move(checked.name), .wrong = std::move(checked.wrong)});
  }
  return all;
}

}  // namespace layercast
