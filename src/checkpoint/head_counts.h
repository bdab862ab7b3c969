// How many attention heads a model has, as files of formats other than Hugging Face's say. Their loaders need these
// numbers to put the rows of q and k into Hugging Face's order. Wrong numbers would give wrong weights that fit
// everywhere, so they are compared with the config.json beside the files, and with the model that is loaded.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace layercast {

// Value.
struct HeadCounts {
  struct Count {
    std::string field;  // what the file calls the number
    std::int64_t number = 0;
  };
  std::string file;  // the file that says them, in quotes
  Count heads;
  Count kv_heads;
};

// The numbers in a config.json; a number that it does not have is empty. Value.
struct ConfigHeads {
  std::optional<std::int64_t> num_attention_heads;
  std::optional<std::int64_t> num_key_value_heads;

  // If the file is missing or cannot be read, the numbers are empty: whoever builds a model from it says why.
  static ConfigHeads Read(const std::filesystem::path& config);
};

// A sentence for each number that differs, naming file, field and both numbers. `whose` names the model of `config`.
std::vector<std::string> Differences(const HeadCounts& said, const ConfigHeads& config, const std::string& whose);

}  // namespace layercast
