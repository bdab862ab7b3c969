// Plans an adapter as a rank of an engine would load it: where each of its tensors goes, and what is wrong with it.
// Used by `layercast plan`.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "layercast/model/module.h"
#include "src/control/json_forms.h"
#include "src/tensor/manifest/manifest.h"

namespace layercast::cli {

// Value.
struct AdapterPlan {
  std::unique_ptr<Module> tree;  // that takes the adapter's tensors: a slot of this rank
  Manifest manifest;
  Json modules = Json::array();  // [{"path", "rank", "scale"}]
  std::vector<std::string> problems;
};

// `base` is the rank's tree of the model. Reads the headers of the folder's files alone.
AdapterPlan PlanAdapter(const std::string& folder, const Module& base);

}  // namespace layercast::cli
