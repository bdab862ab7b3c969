// Which part of the model this rank holds. Value.
#pragma once

#include <cstdint>

namespace layercast {

// Which experts a rank holds where they are spread over ranks: neighbours, or every ep_size-th.
enum class ExpertPlacement : std::uint8_t { kContiguous, kRoundRobin };

struct ParallelConfig {
  int tp_rank = 0;
  int tp_size = 1;
  // Expert parallelism: above 1, experts are spread whole over ep_size ranks; at 1, each is split over tp_size.
  int ep_rank = 0;
  int ep_size = 1;
  ExpertPlacement expert_placement = ExpertPlacement::kContiguous;
};

}  // namespace layercast
