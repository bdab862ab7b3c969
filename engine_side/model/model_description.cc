#include "layercast/model_description.h"

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "engine_side/model/config_fields.h"
#include "engine_side/model/stored_dtype.h"
#include "layercast/error.h"
#include "src/base/shallow_json.h"
#include "src/checkpoint/mapped_file.h"

namespace layercast {
namespace {

constexpr const char* kModelOptFile = "hf_quant_config.json";  // beside config.json
constexpr std::size_t kLargestFile = 64 << 20;                 // long lists of ignored experts take a few MiB
constexpr const char* kQuantization = "quantization_config";

// nullopt if there is no such file.
std::optional<std::string> ReadText(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  const MappedFile file(path);
  if (file.bytes().size() > kLargestFile) {
    throw Error(ErrorCode::kInvalidArgument, path.string() + ": expected at most " + std::to_string(kLargestFile) +
                                                 " bytes, got " + std::to_string(file.bytes().size()));
  }
  file.Populate(file.bytes());
  return std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
}

// Adds what ModelOpt's own file says, in which ModelOpt up to 0.29 states how it quantized the checkpoint. A
// `quantization_config` in config.json takes precedence, as in vLLM.
std::string WithModelOptFile(std::string config_text, const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kModelOptFile;
  const std::optional<std::string> text = ReadText(path);
  if (!text) return config_text;
  nlohmann::json config = ParseConfigText(config_text);
  if (!config.is_object() || (config.contains(kQuantization) && !config[kQuantization].is_null())) return config_text;
  nlohmann::json quantization = ParseShallowJson<nlohmann::json>(*text);
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
  return FromJson(WithStoredDType(WithModelOptFile(*std::move(text), directory), directory), directory);
}

ModelDescription ModelDescription::FromJson(std::string config_json, std::filesystem::path directory) {
  return ModelDescription(std::move(config_json), std::move(directory));
}

}  // namespace layercast
