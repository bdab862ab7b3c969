#include "layercast/model_description.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "engine_side/model/config/config_fields.h"
#include "engine_side/model/config/stored_dtype.h"
#include "layercast/error.h"
#include "src/base/bytes/python_json.h"
#include "src/base/exhausted.h"
#include "src/checkpoint/mapped_file.h"

namespace layercast {
namespace {

// Beside config.json.
constexpr const char* kModelOptFile = "hf_quant_config.json";
constexpr const char* kGenerationFile = "generation_config.json";

constexpr std::size_t kLargestFile = 64 << 20;  // long lists of ignored experts take a few MiB
constexpr const char* kQuantization = "quantization_config";
constexpr const char* kEndTokens = "eos_token_id";

// nullopt if there is no such file.
std::optional<std::string> ReadText(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    if (!error) return std::nullopt;
    throw SystemError(error.value(), ErrorCode::kInvalidArgument, path.string() + ": cannot be opened");
  }
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
  nlohmann::json quantization = ParsePythonJson<nlohmann::json>(*text);
  if (!quantization.is_object() || !quantization.contains("quantization")) {
    throw Error(ErrorCode::kInvalidArgument,
                path.string() +
                    ": expected a JSON object with the field 'quantization', which says how ModelOpt has "
                    "quantized the checkpoint");
  }
  config[kQuantization] = std::move(quantization);
  return config.dump();
}

// The end tokens in the folder's generation_config.json; none if there is no such file.
std::vector<std::int64_t> GenerationEndTokens(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kGenerationFile;
  const std::optional<std::string> text = ReadText(path);
  if (!text) return {};
  return ConfigFields(ParseConfigText(*text, path.string()), {}, path.string()).Integers(kEndTokens);
}

// The object of a config.json whose end tokens count: text_config, if it has any (see TextFields).
nlohmann::json& HolderOfEndTokens(nlohmann::json& config) {
  const auto text = config.find("text_config");
  if (text == config.end() || !text->is_object()) return config;
  const auto inner = text->find(kEndTokens);
  return inner == text->end() || inner->is_null() ? config : *text;
}

// Adds the end tokens that generation_config.json has and config.json has not: a chat model's end of a turn is often
// named there alone. A sequence ends after any of both files, as in vLLM. A `config_text` that cannot be read is
// returned as it is: whoever parses it reports why.
std::string WithGenerationFile(std::string config_text, const std::filesystem::path& directory) {
  const std::vector<std::int64_t> more = GenerationEndTokens(directory);
  if (more.empty()) return config_text;
  try {
    nlohmann::json config = ParseConfigText(config_text);
    nlohmann::json& holder = HolderOfEndTokens(config);
    std::vector<std::int64_t> tokens = ConfigFields(holder).Integers(kEndTokens);
    for (const std::int64_t token : more) {
      if (std::ranges::find(tokens, token) == tokens.end()) tokens.push_back(token);
    }
    holder[kEndTokens] = tokens;
    return config.dump();
  } catch (const Error&) {
    return config_text;
  }
}

}  // namespace

ModelDescription ModelDescription::FromDirectory(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "config.json";
  std::optional<std::string> text = ReadText(path);
  if (!text) {
    throw Error(ErrorCode::kNotFound, path.string() +
                                          ": is not there; expected a model's config.json (names of a "
                                          "hub are not looked up: download it first)");
  }
  text = WithGenerationFile(WithModelOptFile(*std::move(text), directory), directory);
  return FromJson(WithStoredDType(*std::move(text), directory), directory);
}

ModelDescription ModelDescription::FromJson(std::string config_json, std::filesystem::path directory) {
  return ModelDescription(std::move(config_json), std::move(directory));
}

}  // namespace layercast
