// `model.safetensors.index.json`, `pytorch_model.bin.index.json`, `consolidated.safetensors.index.json`: which file
// holds which tensor.
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
  std::map<std::string, std::string> weight_map;  // tensor -> file, a plain name in the index's folder
  std::optional<std::uint64_t> total_size;        // of all tensors in bytes, as its `metadata` says

  // Each file once, in natural order.
  std::vector<std::string> Files() const;
};

// Throws kCorrupt, naming the file and the entry, unless it is strict JSON with a `weight_map` of text to plain file
// names, one at least.
WeightIndex ReadWeightIndex(const std::filesystem::path& path);

}  // namespace layercast
