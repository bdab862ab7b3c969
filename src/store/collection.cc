#include "src/store/collection.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <numeric>
#include <optional>
#include <set>
#include <vector>

#include "layercast/error.h"
#include "src/base/log.h"
#include "src/base/random_id.h"
#include "src/store/lease.h"
#include "src/store/new_file.h"

namespace layercast {
namespace {

std::int64_t StoreNow(const StoreFolder& folder) {
  FailPoints none;
  return NewFile(folder.tmp(), none).WrittenAt();
}

// A sweep of one store. Resource; one thread only.
class Sweeping {
 public:
  Sweeping(const StoreFolder& folder, std::chrono::seconds grace)
      : folder_(folder), grace_(grace), now_(StoreNow(folder)) {}

  void Run() {
    SweepTmp();
    SweepEvicted();
    SweepParts();
    for (const auto& records : {folder_.versions(), folder_.evicted()}) MarkObjectsOf(records);
    if (HasParts()) MarkObjectsOf(folder_.parts());
    for (const std::string& part : StoreFolder::NamesIn(folder_.objects())) SweepObjects(folder_.objects() / part);
  }

 private:
  // Nothing that is gone already is old: somebody else sweeps too.
  bool IsOld(const std::filesystem::path& path) const {
    try {
      return AgeOf(path, now_) >= grace_;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kNotFound) throw;
      return false;
    }
  }

  void SweepTmp() const {
    for (const std::string& name : StoreFolder::NamesIn(folder_.tmp())) {
      if (IsOld(folder_.tmp() / name)) ::unlink((folder_.tmp() / name).c_str());
    }
  }

  void SweepEvicted() const {
    const std::set<StoredName> leased = Leased(folder_, now_);
    for (const std::string& text : StoreFolder::NamesIn(folder_.evicted())) {
      const auto name = StoredName::FromString(text);
      if (name && leased.contains(*name)) continue;
      if (IsOld(folder_.evicted() / text)) ::unlink((folder_.evicted() / text).c_str());
    }
  }

  bool HasParts() const { return std::filesystem::exists(folder_.parts()); }

  // Of versions whose other parts do not come any more, or that were put together by one who was killed then.
  void SweepParts() const {
    if (!HasParts()) return;
    for (const std::string& name : StoreFolder::NamesIn(folder_.parts())) {
      try {
        if (AgeOf(folder_.parts() / name, now_) >= kPartsWait) ::unlink((folder_.parts() / name).c_str());
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kNotFound) throw;
      }
    }
  }

  // Throws what it finds wrong with a record: what that names is not known, so nothing may go.
  void MarkObjectsOf(const std::filesystem::path& records) {
    for (const std::string& name : StoreFolder::NamesIn(records)) {
      const auto bytes = StoreFolder::Read(records / name);
      if (!bytes) continue;  // it has just been evicted or removed
      const VersionRecord record = VersionRecord::Decode(*bytes);
      for (const Manifest& manifest : record.held()) {
        for (const auto& entry : manifest.entries()) marked_.insert(entry.digest);
      }
    }
  }

  void SweepObjects(const std::filesystem::path& part) const {
    for (const std::string& name : StoreFolder::NamesIn(part)) {
      const std::optional<Digest> digest = Digest::FromHex(name);
      if (!digest || !marked_.contains(*digest)) Remove(part / name);
    }
  }

  // Whoever writes a version touches an object before relying on it. So it is first taken away, and put back if it was
  // touched until then.
  void Remove(const std::filesystem::path& object) const {
    if (!IsOld(object)) return;
    const std::filesystem::path taken = folder_.tmp() / std::to_string(RandomId());
    if (::rename(object.c_str(), taken.c_str()) != 0) return;  // somebody else has
    if (!IsOld(taken)) ::link(taken.c_str(), object.c_str());
    ::unlink(taken.c_str());
  }

  const StoreFolder& folder_;
  const std::chrono::seconds grace_;
  const std::int64_t now_;
  std::set<Digest> marked_;
};

}  // namespace

void Trim(const VersionStore& store, const std::string& lineage, const StoreLimits& limits) {
  std::vector<StoredVersion> list = store.List();
  std::uint64_t bytes = 0;
  for (const StoredVersion& stored : list) bytes += stored.added_bytes;
  std::erase_if(list, [&](const StoredVersion& one) { return one.pinned || one.version().lineage != lineage; });
  for (std::size_t i = 0; i + 1 < list.size(); ++i) {
    const bool over = list.size() - i > limits.versions || (limits.bytes != 0 && bytes > limits.bytes);
    if (!over) return;
    store.Evict(list[i].name);
    log::info("{} keeps {} no longer", store.folder().ToString(), list[i].version().ToString());
    if (limits.bytes == 0) continue;
    const std::vector<StoredVersion> left = store.List();
    bytes = std::accumulate(left.begin(), left.end(), std::uint64_t{0},
                            [](std::uint64_t sum, const StoredVersion& one) { return sum + one.added_bytes; });
  }
}

void Sweep(const VersionStore& store, std::chrono::seconds grace) {
  try {
    Sweeping(store.folder(), grace).Run();
  } catch (const Error& error) {
    log::warn("{}: nothing more is removed from it now: {}", store.folder().ToString(), error.what());
  }
}

}  // namespace layercast
