#include "engine_side/reload/noise/norms.h"

#include <map>
#include <string>

#include "engine_side/model/naming/path.h"
#include "layercast/memory.h"
#include "layercast/model/norm.h"
#include "src/base/rounding.h"

namespace layercast {
namespace {

// The first channel of each norm's weight, by the weight's full name.
void FindNorms(const Module& module, const std::string& path, std::map<std::string, std::uint64_t>& norms) {
  if (const auto* const norm = dynamic_cast<const RMSNorm*>(&module)) {
    for (const Parameter& parameter : norm->parameters()) {
      norms.emplace(JoinPath(path, parameter.spec.name), static_cast<std::uint64_t>(norm->first_channel()));
    }
  }
  for (const auto& [name, child] : module.children()) FindNorms(*child, JoinPath(path, name), norms);
}

}  // namespace

std::vector<Norm> NormsOf(const Module& model, const KernelLayout& layout) {
  std::map<std::string, std::uint64_t> named;
  FindNorms(model, {}, named);
  std::vector<Norm> norms;
  std::size_t end = 0;
  for (std::size_t i = 0; i < layout.tensors().size(); ++i) {
    const auto found = named.find(layout.tensors()[i].spec.name);
    if (found == named.end()) continue;
    norms.push_back({.tensor = i, .first_channel = found->second, .offset = end});
    end += RoundUp(layout.tensors()[i].num_bytes, kMemoryAlignment);
  }
  return norms;
}

}  // namespace layercast
