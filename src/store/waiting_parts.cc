#include "src/store/waiting_parts.h"

#include <unistd.h>

#include <utility>
#include <vector>

#include "layercast/error.h"
#include "src/base/run_at.h"
#include "src/base/utf8.h"
#include "src/store/new_file.h"

namespace layercast {

std::filesystem::path WaitingParts::Of(int rank) const {
  const Version& version = part_.manifest.version();
  return folder_.parts() / (DigestOfLineage(version.lineage).ToHex() + "." + std::to_string(version.step) + "." +
                            DigestOfLineage(part_.run).ToHex() + "." + std::to_string(rank) + "." +
                            std::to_string(part_.manifest.part().ranks));
}

void WaitingParts::Put(FailPoints& failpoints) const {
  const int rank = part_.manifest.part().rank;
  NewFile file(folder_.tmp(), failpoints);
  file.Write(part_.Encode());
  file.Flush();
  if (!file.Link(Of(rank))) {
    const auto there = StoreFolder::Read(Of(rank));  // gone: another rank has put the version together
    if (there && VersionRecord::Decode(*there).manifest.version() != part_.manifest.version()) {
      throw Error(ErrorCode::kInvalidArgument,
                  folder_.ToString() + ": part " + std::to_string(rank) + " of " + RunAt(part_.manifest.version()) +
                      " is there with other bytes: a trainer that was started anew needs another run than " +
                      Quote(part_.run));
    }
  }
  FlushFolder(folder_.parts(), failpoints);
}

std::optional<VersionRecord> WaitingParts::Whole() const {
  std::vector<VersionRecord> parts;
  for (int rank = 0; rank < part_.manifest.part().ranks; ++rank) {
    const auto bytes = StoreFolder::Read(Of(rank));
    if (!bytes) return std::nullopt;
    parts.push_back(VersionRecord::Decode(*bytes));
  }
  return VersionRecord::OfParts(std::move(parts));
}

void WaitingParts::Remove() const {
  for (int rank = 0; rank < part_.manifest.part().ranks; ++rank) ::unlink(Of(rank).c_str());
}

}  // namespace layercast
