// The smallest module trees, to which tests add layers.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "layercast/model/module.h"

namespace layercast::testing {

// A module that has nothing but children.
class Tree : public Module {
 public:
  explicit Tree(std::string class_name = "Tree") : Module(std::move(class_name)) {}

  template <typename Layer>
  Layer& Add(std::string name, std::unique_ptr<Layer> layer) {
    return static_cast<Layer&>(AddChild(std::move(name), std::move(layer)));
  }
};

}  // namespace layercast::testing
