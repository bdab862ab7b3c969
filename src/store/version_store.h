// The versions of a store, as readers see them: those that are whole. Used by engines, which take versions from it, by
// publishers, and by `layercast versions --store`.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "layercast/version.h"
#include "src/base/threads/worker_pool.h"
#include "src/store/store_folder.h"
#include "src/store/version_record.h"

namespace layercast {

// Value.
struct StoredVersion {
  StoredName name;
  VersionRecord record;
  std::uint64_t added_bytes = 0;  // of its objects: what no older version in the list has
  bool pinned = false;
  bool shadowed = false;  // a later run of the lineage has taken its step over: it goes by its digest alone

  const Version& version() const { return record.manifest.version(); }
};

// Value. Calls throw kUnavailable if the file system fails.
class VersionStore {
 public:
  // How long an object is waited for that a version names: a network's file system may show it late.
  static constexpr std::chrono::milliseconds kShownWithin{10'000};

  explicit VersionStore(StoreFolder folder, std::chrono::milliseconds shown_within = kShownWithin)
      : folder_(std::move(folder)), shown_within_(shown_within) {}

  const StoreFolder& folder() const { return folder_; }
  // Of a lineage, oldest first: number 1, 2, ...
  std::vector<RunRecord> Runs(const Digest& lineage) const;
  // Those that are whole: by lineage, the one with the newest version last, and then by run and step.
  std::vector<StoredVersion> List() const;
  // `lineage` empty: any. Without step and digest, the newest run's newest step. With `digest` the version that has it,
  // also if a later run has taken its step over. Throws kNotFound, naming what there is.
  StoredVersion Find(const std::string& lineage, std::optional<std::uint64_t> step, const Digest& digest = {}) const;

  StoredVersion Find(const StoredName& name) const;

  // A version that is pinned is not evicted. Throws kNotFound.
  void Pin(const StoredName& name, bool pin) const;
  // Takes the version out of the list: nobody begins to read it any more. Its objects go when collection.h's time has
  // passed. Throws kFailedPrecondition if it is pinned.
  void Evict(const StoredName& name) const;

  // What a check has found. Value.
  struct Checked {
    std::string name;  // "run-17@42:...", or that of a record that cannot be read
    std::vector<std::string> wrong;
  };
  // Reads every byte of every version.
  std::vector<Checked> Check(WorkerPool& pool) const;

 private:
  // The size of each object that was looked at, or nothing if it is not there.
  using Sizes = std::map<Digest, std::optional<std::uint64_t>>;

  std::optional<StoredVersion> Read(const StoredName& name) const;
  std::vector<StoredName> Names() const;
  // What is missing of its objects; empty: nothing.
  std::string Missing(const VersionRecord& record, Sizes& sizes) const;
  std::string Missing(const Manifest& manifest, Sizes& sizes) const;
  void CheckObjects(const Manifest& manifest, std::map<Digest, std::string>& wrong, Checked& checked,
                    WorkerPool& pool) const;
  void AwaitObjects(const StoredVersion& version) const;
  std::optional<StoredVersion> AtStep(const std::string& lineage, std::uint64_t step, const Digest& digest) const;

  StoreFolder folder_;
  std::chrono::milliseconds shown_within_;
};

}  // namespace layercast
