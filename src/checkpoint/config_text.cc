#include "src/checkpoint/config_text.h"

#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "layercast/error.h"
#include "src/base/bytes/shallow_json.h"
#include "src/checkpoint/mapped_file.h"

namespace layercast {
namespace {

constexpr std::size_t kLargestFile = 64U << 20;

std::string WithoutQuantization(const std::string& text) {
  try {
    auto config = ParseShallowJson<nlohmann::ordered_json>(text);
    if (!config.is_object()) return {};
    config.erase("quantization_config");
    return config.dump();
  } catch (const nlohmann::json::exception&) {
    return {};
  }
}

}  // namespace

std::string ConfigTextBeside(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::is_directory(path, error) ? path : path.parent_path();
  const std::filesystem::path config = folder / "config.json";
  if (!std::filesystem::is_regular_file(config, error)) return {};
  try {
    const MappedFile file(config);
    if (file.bytes().size() > kLargestFile) return {};
    file.Populate(file.bytes());
    return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
  } catch (const Error&) {
    return {};
  }
}

std::string ConfigTextToSend(std::string text) {
  if (text.size() <= kMostConfigBytes) return text;
  std::string shorter = WithoutQuantization(text);
  return shorter.size() <= kMostConfigBytes ? std::move(shorter) : std::string();
}

}  // namespace layercast
