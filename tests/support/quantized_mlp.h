// An MLP whose layers may be quantized, for tests of what a quantization_config says of them.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "layercast/model/linear.h"
#include "tests/support/tree.h"

namespace layercast::testing {

// The module "mlp" with a gate_up_proj, whose gate and up have 384 rows each, and a down_proj.
inline std::unique_ptr<Tree> Mlp(int rank, int ranks) {
  const LayerContext context{{rank, ranks}, DType::kBF16, true};
  auto root = std::make_unique<Tree>();
  auto& mlp = root->Add("mlp", std::make_unique<Tree>());
  mlp.Add("gate_up_proj", std::make_unique<MergedColumnParallelLinear>(
                              context, 256, std::vector<MergedShard>{{"gate_proj", 384}, {"up_proj", 384}}, true));
  mlp.Add("down_proj", std::make_unique<RowParallelLinear>(context, 384, 256, false));
  return root;
}

inline LinearLayer& Layer(Module& root, std::size_t index) {
  return dynamic_cast<LinearLayer&>(*root.children()[0].second->children()[index].second);
}

}  // namespace layercast::testing
