// Which part of the model a rank holds. Model families, load plans and receivers are given one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "layercast/export.h"

namespace layercast {

// Which experts a rank holds when whole experts are spread over ranks: neighbouring ones, or every ep_size-th.
enum class ExpertPlacement : std::uint8_t { kContiguous, kRoundRobin };

// The placements' names are "contiguous" and "round_robin". ExpertPlacementNamed throws kInvalidArgument, listing them,
// for any other.
LAYERCAST_PUBLIC ExpertPlacement ExpertPlacementNamed(std::string_view name);
LAYERCAST_PUBLIC std::string_view ExpertPlacementName(ExpertPlacement placement);
LAYERCAST_PUBLIC std::vector<std::string> KnownExpertPlacements();

// Value.
struct ParallelConfig {
  int tp_rank = 0;
  int tp_size = 1;
  // Expert parallelism: above 1, experts are spread whole over ep_size ranks; at 1, each is split over tp_size.
  int ep_rank = 0;
  int ep_size = 1;
  ExpertPlacement expert_placement = ExpertPlacement::kContiguous;
  // Pipeline parallelism: above 1, this rank holds only the layers of its stage (PipelineStages says which).
  int pp_rank = 0;
  int pp_size = 1;
  std::vector<std::int64_t> pp_layer_partition{};  // how many layers each stage has; empty: spread as vLLM does
  bool pp_embeds_on_last = false;  // the last stage holds the embedding too, because a draft model there needs it

  // Turns on expert parallelism over the tensor-parallel ranks: whole experts are spread over them, and none is split.
  void SpreadExperts(ExpertPlacement placement = ExpertPlacement::kContiguous) {
    ep_rank = tp_rank;
    ep_size = tp_size;
    expert_placement = placement;
  }

  // This rank's number among all ranks of the engine, which are counted stage by stage.
  int engine_rank() const { return pp_rank * tp_size + tp_rank; }
  int engine_size() const { return pp_size * tp_size; }
  // The first rank of the last stage: it has the logits, and picks tokens.
  int sampling_rank() const { return (pp_size - 1) * tp_size; }
};

}  // namespace layercast
