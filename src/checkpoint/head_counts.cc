#include "src/checkpoint/head_counts.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "layercast/error.h"
#include "src/base/bytes/python_json.h"
#include "src/checkpoint/mapped_file.h"

namespace layercast {
namespace {

std::optional<std::int64_t> NumberIn(const nlohmann::json& config, const char* field) {
  const auto found = config.find(field);
  if (found == config.end() || !found->is_number_unsigned()) return std::nullopt;
  const auto number = found->get<std::uint64_t>();
  if (number > std::numeric_limits<std::int32_t>::max()) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

// The parsed file. A discarded value, or one that is not an object, if the file is not such JSON.
nlohmann::json ReadConfig(const std::filesystem::path& path) {
  try {
    const MappedFile file(path);
    const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
    return ParsePythonJson<nlohmann::json>(text);
  } catch (const Error&) {
    return nullptr;
  }
}

}  // namespace

ConfigHeads ConfigHeads::Read(const std::filesystem::path& config) {
  const nlohmann::json whole = ReadConfig(config);
  if (!whole.is_object()) return {};
  const auto text = whole.find("text_config");  // the language model's part of a vision model
  const nlohmann::json& decoder = text != whole.end() && text->is_object() ? *text : whole;
  return {NumberIn(decoder, "num_attention_heads"), NumberIn(decoder, "num_key_value_heads")};
}

std::vector<std::string> Differences(const HeadCounts& said, const ConfigHeads& config, const std::string& whose) {
  std::vector<std::string> differences;
  const auto compare = [&](const HeadCounts::Count& got, std::optional<std::int64_t> expected, const char* name) {
    if (!expected || *expected == got.number) return;
    differences.push_back(said.file + ": " + got.field + ": expected the " + std::to_string(*expected) + " that " +
                          name + " of " + whose + " is, got " + std::to_string(got.number));
  };
  compare(said.heads, config.num_attention_heads, "num_attention_heads");
  compare(said.kv_heads, config.num_key_value_heads, "num_key_value_heads");
  return differences;
}

}  // namespace layercast
