// DeepSeek-V3's routing of experts, which other families took over. Experts are picked by sigmoid scores plus a bias
// that does not enter their weights, and there are shared experts beside them.
#pragma once

#include "layercast/model/config.h"
#include "layercast/model/mixture_of_experts.h"

namespace layercast {

inline MoeOptions CorrectedSigmoidExperts(const MoeConfig& moe) {
  return {.routing = {.score = Routing::Score::kSigmoid,
                      .normalize = moe.norm_topk_prob,
                      .normalize_epsilon = 1e-20,  // as DeepSeek's own code
                      .fp32_logits = true},
          .router = {.correction_bias = true},
          .shared_name = "shared_experts"};
}

}  // namespace layercast
