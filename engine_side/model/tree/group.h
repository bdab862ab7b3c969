// A module that is only its children and parameters, for those nodes of a tree that compute nothing themselves.
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
