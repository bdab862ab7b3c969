// A module that is nothing but its children and parameters, for parts of a tree that compute nothing by themselves.
#pragma once

#include "layercast/model/module.h"

namespace layercast {

class Group final : public Module {
 public:
  using Module::AddChild;
  using Module::AddParameter;
  using Module::Module;
};

}  // namespace layercast
