#include "src/checkpoint/checkpoint_manifest.h"

#include <system_error>
#include <utility>
#include <vector>

#include "src/tensor/manifest_entry.h"

namespace layercast {

Manifest MakeManifest(const Checkpoint& checkpoint, std::string lineage, std::uint64_t step, WorkerPool& pool) {
  std::vector<ManifestEntry> entries;
  entries.reserve(checkpoint.specs().size());
  for (std::size_t i = 0; i < checkpoint.specs().size(); ++i) {
    const NamedTensor named = checkpoint.Tensor(i);
    entries.push_back(EntryOf(named.name, named.tensor, pool));
  }
  return {std::move(lineage), step, std::move(entries)};
}

std::string DefaultLineage(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::weakly_canonical(path, error);
  const std::filesystem::path& known = error ? path : whole;
  return (std::filesystem::is_directory(known, error) ? known : known.parent_path()).filename().native();
}

}  // namespace layercast
