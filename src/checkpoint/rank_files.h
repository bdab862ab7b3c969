// The names of the files that `layercast export` writes: each rank's own, in parts.
#pragma once

#include <string>
#include <string_view>

namespace layercast {

inline constexpr std::string_view kRankFilePrefix = "model-rank-";

inline std::string RankFileName(int rank, int part) {
  return std::string(kRankFilePrefix) + std::to_string(rank) + "-part-" + std::to_string(part) + ".safetensors";
}

// Whether a file has such a name.
inline bool IsRankFile(std::string_view name) {
  return name.starts_with(kRankFilePrefix) && name.ends_with(".safetensors");
}

}  // namespace layercast
