#include "layercast/model_description.h"

#include <fstream>
#include <iterator>

#include "layercast/error.h"

namespace layercast {

ModelDescription ModelDescription::FromDirectory(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "config.json";
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw Error(ErrorCode::kNotFound, path.string() +
                                          ": cannot be opened; expected a model's config.json (names of a "
                                          "hub are not looked up: download it first)");
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (file.bad()) throw Error(ErrorCode::kUnavailable, path.string() + ": cannot be read");
  return FromJson(std::move(text), directory);
}

ModelDescription ModelDescription::FromJson(std::string config_json, std::filesystem::path directory) {
  return ModelDescription(std::move(config_json), std::move(directory));
}

}  // namespace layercast
