// Reads `model.safetensors.index.json`, `pytorch_model.bin.index.json` and `consolidated.safetensors.index.json`, which
// say which file holds which tensor. Used by SurveyCheckpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace layercast {

inline constexpr char kWeightIndexName[] = "model.safetensors.index.json";

// Value.
struct WeightIndex {
  std::map<std::string, std::string> weight_map;  // from tensor to file, a plain name in the index's folder
  std::optional<std::uint64_t> total_size;        // of all tensors in bytes, as its `metadata` says

  // The files, each once, in natural order.
  std::vector<std::string> Files() const;
};

// Throws kCorrupt, naming the file and the entry, unless it is strict JSON whose `weight_map` has at least one entry,
// all of them from texts to plain file names.
WeightIndex ReadWeightIndex(const std::filesystem::path& path);

}  // namespace layercast
