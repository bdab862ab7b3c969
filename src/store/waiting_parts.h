// The parts of a version that a sharded trainer's ranks write, each on its own, until all of them are there
// (FORMAT.md). Used by the writer.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "src/base/failpoint.h"
#include "src/store/store_folder.h"
#include "src/store/version_record.h"

namespace layercast {

// Value.
class WaitingParts {
 public:
  // Those of the version that `part` is of, which outlives this.
  WaitingParts(const StoreFolder& folder, const VersionRecord& part) : folder_(folder), part_(part) {}

  // Puts the part's record there, whose objects are on disk. Throws kInvalidArgument if there is another of its rank.
  void Put(FailPoints& failpoints) const;
  // The version, by all of its ranks' records; nullopt: some are missing. Throws kInvalidArgument if an element is in
  // none of them, or in two.
  std::optional<VersionRecord> Whole() const;
  // Takes the records away, once the version's is there.
  void Remove() const;

 private:
  std::filesystem::path Of(int rank) const;

  const StoreFolder& folder_;
  const VersionRecord& part_;
};

}  // namespace layercast
