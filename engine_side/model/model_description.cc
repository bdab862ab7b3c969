#include "layercast/model_description.h"

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "engine_side/model/config_fields.h"
#include "layercast/error.h"

namespace layercast {
namespace {

constexpr const char* kModelOptFile = "hf_quant_config.json";  // beside config.json
constexpr const char* kQuantization = "quantization_config";

// Nothing where there is no such file.
std::optional<std::string> ReadText(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (file.bad()) throw Error(ErrorCode::kUnavailable, path.string() + ": cannot be read");
  return text;
}

// ModelOpt up to 0.29 says in a file of its own how the checkpoint is quantized: what config.json says goes before it,
// as it does for vLLM.
std::string WithModelOptFile(std::string config_text, const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kModelOptFile;
  const std::optional<std::string> text = ReadText(path);
  if (!text) return config_text;
  nlohmann::json config = ParseConfigText(config_text);
  if (!config.is_object() || (config.contains(kQuantization) && !config[kQuantization].is_null())) return config_text;
  nlohmann::json quantization = nlohmann::json::parse(*text, nullptr, false);
  if (!quantization.is_object() || !quantization.contains("quantization")) {
    throw Error(ErrorCode::kInvalidArgument,
                path.string() +
                    ": expected a JSON object with the field 'quantization', which says how ModelOpt has "
                    "quantized the checkpoint");
  }
  config[kQuantization] = std::move(quantization);
  return config.dump();
}

}  // namespace

ModelDescription ModelDescription::FromDirectory(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "config.json";
  std::optional<std::string> text = ReadText(path);
  if (!text) {
    throw Error(ErrorCode::kNotFound, path.string() +
                                          ": cannot be opened; expected a model's config.json (names of a "
                                          "hub are not looked up: download it first)");
  }
  return FromJson(WithModelOptFile(*std::move(text), directory), directory);
}

ModelDescription ModelDescription::FromJson(std::string config_json, std::filesystem::path directory) {
  return ModelDescription(std::move(config_json), std::move(directory));
}

}  // namespace layercast
