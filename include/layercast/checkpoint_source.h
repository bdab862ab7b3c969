// Where a checkpoint lies on disk, and how it is read. Value. docs/checkpoints.md lists the formats.
#pragma once

#include <string>
#include <vector>

namespace layercast {

struct CheckpointSource {
  // Weights that another folder or file holds. Each of its names gets `prefix` ("vision_tower.") put before it.
  struct Secondary {
    std::string prefix;
    std::string path;

    bool operator==(const Secondary&) const = default;
  };

  std::string path;                  // a folder, or one file
  std::string load_format = "auto";  // "safetensors", "pt", ...
  std::vector<Secondary> secondary{};

  bool operator==(const CheckpointSource&) const = default;
};

}  // namespace layercast
