// The manifest of a checkpoint on disk: publishers of a folder, cold loads and `inspect` make it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "src/base/worker_pool.h"
#include "src/checkpoint/checkpoint.h"
#include "src/tensor/manifest.h"

namespace layercast {

// In checkpoint order. Reads every byte. Throws kCorrupt on a NaN or infinity (its tensor and index) and
// kInvalidArgument on names that a manifest cannot hold.
Manifest MakeManifest(const Checkpoint& checkpoint, std::string lineage, std::uint64_t step, WorkerPool& pool);

// The lineage of a checkpoint that was given none: the folder's name, of a file that of its folder.
std::string DefaultLineage(const std::filesystem::path& path);

}  // namespace layercast
