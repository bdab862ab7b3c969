#include "engine_side/plan/tree_names.h"

#include "layercast/error.h"
#include "layercast/model/module.h"

namespace layercast {
namespace {

std::vector<SourceView> ViewsOf(const Module& model, const TensorSpec& spec) {
  try {
    return model.transforms().Apply(spec);
  } catch (const Error&) {  // the plan reports what is wrong with it
    return SourceTransforms().Apply(spec);
  }
}

}  // namespace

std::vector<WeightsMapper::Mapping> MappingsOf(const Module& model, const TensorSpec& spec) {
  std::vector<WeightsMapper::Mapping> mappings;
  for (const SourceView& view : ViewsOf(model, spec)) {
    try {
      mappings.push_back(model.mapper().Map(view.spec.name));
    } catch (const Error&) {  // the plan reports it too
    }
  }
  return mappings;
}

}  // namespace layercast
