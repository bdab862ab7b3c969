// Finds the layer that has a module which a checkpoint names, in order to say why tensors are refused whose shapes no
// layer takes. Used where quantized layers are found.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>

#include "layercast/model/quantizable_layer.h"

namespace layercast {

// Value. Borrows the layers, which belong to the module tree.
class LayersByModule {
 public:
  explicit LayersByModule(Module& model) { Add(model, ""); }

  struct Found {
    std::string path;
    const QuantizableLayer* layer = nullptr;
  };
  // Null if no layer has the module. That is also so if a mapper gives the module another name.
  const Found* Find(const std::string& module) const;

 private:
  void Add(Module& module, const std::string& path);

  std::unordered_map<std::string, Found> found_;
};

}  // namespace layercast
