#include "engine_side/model/registry/config_classes.h"

#include <algorithm>
#include <string>

#include "engine_side/model/config/config_fields.h"
#include "engine_side/model/registry/builtin_families.h"

namespace layercast {
namespace {

// Finds the class by `model_type` or, if none has that, by `architectures`, which says what is built: MiniMax-M2 was
// first published as "minimax", Kimi-K2 calls its DeepSeek-V3 "kimi_k2", and a file may have no `model_type` at all.
// Null if there is no such class.
const BuiltinFamily* ClassOf(const nlohmann::json& config) {
  const std::span<const BuiltinFamily> classes = BuiltinFamilies();
  const ConfigFields fields(config);
  const std::string type = fields.Text("model_type", "");
  const auto by_type = std::ranges::find(classes, type, &BuiltinFamily::model_type);
  if (by_type != classes.end()) return &*by_type;
  for (const std::string& name : fields.Texts("architectures")) {
    const auto by_name = std::ranges::find(classes, name, &BuiltinFamily::architecture);
    if (by_name != classes.end()) return &*by_name;
  }
  return nullptr;
}

}  // namespace

void CompleteConfig(nlohmann::json& config) {
  const BuiltinFamily* of = ClassOf(config);
  if (of == nullptr) return;
  if (ConfigFields(config).Text("model_type", "").empty()) config["model_type"] = of->model_type;
  of->complete(config);
}

bool IsAttentionFree(const nlohmann::json& config) {
  const BuiltinFamily* of = ClassOf(config);
  return of != nullptr && of->model_type == "mamba2";
}

}  // namespace layercast
