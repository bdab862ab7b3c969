#include "engine_side/model/config/stored_dtype.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "engine_side/model/config/config_fields.h"
#include "layercast/error.h"
#include "src/checkpoint/formats/checkpoint.h"

namespace layercast {
namespace {

// torch's name of the dtype; empty for a dtype in which no model is served.
std::string_view TorchName(DType dtype) {
  switch (dtype) {
    case DType::kBF16: return "bfloat16";
    case DType::kF16: return "float16";
    case DType::kF32: return "float32";
    default: return {};
  }
}

bool SaysDType(const nlohmann::json& config) {
  const auto says = [&](const char* field) { return config.contains(field) && !config[field].is_null(); };
  return says("dtype") || says("torch_dtype");
}

std::string_view DTypeOfLargest(const Checkpoint& checkpoint) {
  std::string_view dtype;
  std::int64_t largest = 0;
  for (const TensorSpec& spec : checkpoint.specs()) {
    if (TorchName(spec.dtype).empty() || NumElements(spec.shape) <= largest) continue;
    largest = NumElements(spec.shape);
    dtype = TorchName(spec.dtype);
  }
  return dtype;
}

}  // namespace

std::string WithStoredDType(std::string config_text, const std::filesystem::path& directory) {
  try {
    nlohmann::json config = ParseConfigText(config_text);
    if (!config.is_object() || SaysDType(config)) return config_text;
    const auto text = config.find("text_config");
    const bool nested = text != config.end() && text->is_object();
    if (nested && SaysDType(*text)) return config_text;
    const std::string_view dtype = DTypeOfLargest(Checkpoint::Open(directory));
    if (dtype.empty()) return config_text;
    (nested ? *text : config)["dtype"] = dtype;
    return config.dump();
  } catch (const Error&) {
    return config_text;
  }
}

}  // namespace layercast
