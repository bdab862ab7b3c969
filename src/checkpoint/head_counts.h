// How many heads of attention a model has, as files of other formats than Hugging Face's say: by these numbers their
// loaders put the rows of q and k into Hugging Face's order. Wrong ones would make other weights that fit everywhere,
// so they are held against the config.json beside the files, and against the model that is loaded.
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
    std::string field;  // as the file calls it
    std::int64_t number = 0;
  };
  std::string file;  // that says them, in quotes
  Count heads;
  Count kv_heads;
};

// What a config.json says of them; nothing where it does not. Value.
struct ConfigHeads {
  std::optional<std::int64_t> num_attention_heads;
  std::optional<std::int64_t> num_key_value_heads;

  // Of a file that is not there or cannot be read, nothing: whoever builds the model of it says why.
  static ConfigHeads Read(const std::filesystem::path& config);
};

// A sentence for each number that is another one, naming file, field and both numbers. `whose`: the model of `config`.
std::vector<std::string> Differences(const HeadCounts& said, const ConfigHeads& config, const std::string& whose);

}  // namespace layercast
