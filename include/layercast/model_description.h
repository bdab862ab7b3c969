// What a model is, without its weights: a Hugging Face config.json and the folder it lies in. Value; immutable.
#pragma once

#include <filesystem>
#include <string>
#include <utility>

#include "layercast/export.h"

namespace layercast {

class LAYERCAST_PUBLIC ModelDescription {
 public:
  // Reads `directory`/config.json. If that does not say how the checkpoint is quantized, what ModelOpt says in
  // hf_quant_config.json is added. If it names no dtype, that of the checkpoint in `directory` is added, if there is
  // one. Further end tokens that generation_config.json names are added. Throws kNotFound if config.json is missing.
  // Its contents are checked later, by ModelConfig::Parse. Throws kInvalidArgument if another of these files is
  // malformed.
  static ModelDescription FromDirectory(const std::filesystem::path& directory);
  // `directory` is where the checkpoint lies that `reload_weights()` re-reads. It may be empty.
  static ModelDescription FromJson(std::string config_json, std::filesystem::path directory = {});

  const std::string& config_json() const { return config_json_; }
  const std::filesystem::path& directory() const { return directory_; }

 private:
  ModelDescription(std::string config_json, std::filesystem::path directory)
      : config_json_(std::move(config_json)), directory_(std::move(directory)) {}

  std::string config_json_;
  std::filesystem::path directory_;
};

}  // namespace layercast
