// Writes versions into a store: objects first, the version's record last, which makes it visible. Used by publishers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <stop_token>
#include <string>

#include "src/base/failpoint.h"
#include "src/store/collection.h"
#include "src/store/version_store.h"

namespace layercast {

// The bytes of a manifest's tensor, in host memory, until the next call.
using BytesOfTensor = std::function<std::span<const std::byte>(std::uint32_t tensor)>;

// Resource; one thread only. Others may write to the same store.
class StoreWriter {
 public:
  StoreWriter(StoreFolder folder, const StoreLimits& limits, FailPoints& failpoints,
              std::chrono::seconds grace = kStoreGrace);

  const VersionStore& store() const { return store_; }
  // Returns when the version is on disk. A tensor that the store has already is not written again. Then older versions
  // go, as the limits say. A run that the lineage has not had begins with the version, and shadows those of older runs
  // that have its step or later ones. If the version is there already, nothing is done. Throws kInvalidArgument on a
  // step that is not newer than the last of its run, and on a run that another has followed; kResourceExhausted if the
  // disk is full; kCancelled soon after a stop is requested. After an error the store has the version or it has not.
  // A part of a version is written alike; the version is there once all ranks have written theirs, in any order.
  void Write(const VersionRecord& record, const BytesOfTensor& bytes, const std::stop_token& stop = {});
  // Returns when a tensor of a version that is still to be written is on disk. Nobody sweeps it for a while.
  void Put(const Digest& digest, std::span<const std::byte> bytes);

 private:
  std::optional<std::uint32_t> KnownRun(const VersionRecord& record) const;
  std::uint32_t RunNumber(const VersionRecord& record);
  bool IsThere(const StoredName& name, const Manifest& manifest) const;
  void ExpectNewer(const StoredName& name, const Version& version) const;
  void Show(const VersionRecord& record);
  void WriteRecord(const StoredName& name, const VersionRecord& record);
  void WriteObjects(const Manifest& manifest, const BytesOfTensor& bytes, const std::stop_token& stop);
  bool TouchObject(const Digest& digest, std::uint64_t tensor_bytes) const;
  void WriteOneObject(const Digest& digest, std::span<const std::byte> bytes);
  void FlushObjects(std::set<std::filesystem::path> folders);
  void NameLatest(const StoredName& name);

  const VersionStore store_;
  const StoreFolder& folder_;
  const StoreLimits limits_;
  FailPoints& failpoints_;
  const std::chrono::seconds grace_;
};

}  // namespace layercast
