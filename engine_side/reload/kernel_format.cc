#include "engine_side/reload/kernel_format.h"

#include <cstring>
#include <filesystem>
#include <map>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "src/checkpoint/checkpoint.h"
#include "src/tensor/manifest_entry.h"

namespace layercast {
namespace {

std::filesystem::path PartPath(const std::string& directory, int rank, int part) {
  return std::filesystem::path(directory) /
         ("model-rank-" + std::to_string(rank) + "-part-" + std::to_string(part) + ".safetensors");
}

}  // namespace

std::unique_ptr<WeightsIterator> OpenKernelFormat(const std::string& directory, int tp_rank, int tp_size) {
  std::vector<NamedTensor> tensors;
  int part = 0;
  for (; std::filesystem::exists(PartPath(directory, tp_rank, part)); ++part) {
    const auto weights = Checkpoint::Open(PartPath(directory, tp_rank, part)).Weights();
    while (std::optional<NamedTensor> tensor = weights->Next()) tensors.push_back(std::move(*tensor));
  }
  if (part == 0) {
    throw Error(ErrorCode::kNotFound, "rank " + std::to_string(tp_rank) + ": expected " +
                                          PartPath(directory, tp_rank, 0).string() + ", which is not there");
  }
  if (std::filesystem::exists(PartPath(directory, tp_size, 0))) {
    throw Error(ErrorCode::kInvalidArgument, directory + " was written by more than " + std::to_string(tp_size) +
                                                 " ranks: " + PartPath(directory, tp_size, 0).filename().string() +
                                                 " is there too");
  }
  return MakeWeightsIterator(std::move(tensors));
}

Manifest LoadKernelFormat(WeightsIterator& weights, const std::string& lineage, const KernelLayout& layout,
                          const Staging& staging, WorkerPool& pool) {
  std::map<std::string_view, const KernelTensor*> awaited;
  for (const KernelTensor& tensor : layout.tensors()) awaited.emplace(tensor.spec.name, &tensor);
  std::vector<ManifestEntry> entries;
  std::string problems;
  while (std::optional<NamedTensor> named = weights.Next()) {
    const auto found = awaited.find(named->name);
    if (found == awaited.end()) {
      problems += "\n  unexpected or repeated: '" + named->name + "'";
      continue;
    }
    const KernelTensor& tensor = *found->second;
    awaited.erase(found);
    if (named->tensor.dtype != tensor.spec.dtype || named->tensor.shape != tensor.spec.shape) {
      problems += "\n  '" + named->name + "': expected " + Describe(tensor.spec) + ", got " +
                  Describe(named->tensor.dtype, named->tensor.shape);
      continue;
    }
    entries.push_back(EntryOf(named->name, named->tensor, pool));
    const std::span<std::byte> staged = staging.BytesOf(tensor);
    if (!staged.empty()) std::memcpy(staged.data(), named->tensor.data, staged.size());
  }
  for (const auto& [name, tensor] : awaited) problems += "\n  missing: '" + std::string(name) + "'";
  if (!problems.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "these weights are not this engine's kernel tensors:" + problems);
  }
  return Manifest(lineage, 0, std::move(entries));
}

}  // namespace layercast
