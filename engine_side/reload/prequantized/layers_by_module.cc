#include "engine_side/reload/prequantized/layers_by_module.h"

#include "engine_side/model/naming/path.h"

namespace layercast {

const LayersByModule::Found* LayersByModule::Find(const std::string& module) const {
  const auto found = found_.find(module);
  return found == found_.end() ? nullptr : &found->second;
}

void LayersByModule::Add(Module& module, const std::string& path) {
  if (const auto* layer = dynamic_cast<const QuantizableLayer*>(&module)) {
    found_.try_emplace(path, Found{path, layer});
    for (const auto& way : layer->CheckpointModules(path)) {
      for (const QuantizableLayer::FusedModules& parts : way) {
        for (const std::string& part : parts) found_.try_emplace(part, Found{path, layer});
      }
    }
  }
  for (const auto& [name, child] : module.children()) Add(*child, JoinPath(path, name));
}

}  // namespace layercast
