// Which part of a decoder each stage of a pipeline-parallel engine holds, and the stand-in for the parts of other
// stages. Used where a model's tree is put together.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "layercast/export.h"
#include "layercast/model/module.h"
#include "layercast/parallel.h"

namespace layercast {

// Every stage has at least one layer, and its layers are neighbours. How many it has, `pp_layer_partition` says. If
// that is empty, stages have equal numbers, and the layers that remain go to the stages before the last one, one each
// from back to front (vLLM's get_pp_indices). The first stage has the embedding. The last one has the final norm,
// lm_head and the draft model, if there is one; it has the embedding too if that is tied or a draft model shares it.
// Value.
class LAYERCAST_PUBLIC PipelineStages {
 public:
  // Throws kInvalidArgument, naming both numbers, for a rank that does not exist, for more stages than layers, and for
  // a partition that does not have these stages and layers.
  PipelineStages(const ParallelConfig& parallel, std::int64_t num_layers);

  bool is_first() const { return stage_ == 0; }
  bool is_last() const { return stage_ == last(); }
  bool HoldsLayer(std::int64_t layer) const { return StageOf(layer) == stage_; }
  int StageOf(std::int64_t layer) const;
  int last() const { return static_cast<int>(ends_.size()) - 1; }
  std::int64_t begin() const { return is_first() ? 0 : ends_[static_cast<std::size_t>(stage_) - 1]; }
  std::int64_t end() const { return ends_[static_cast<std::size_t>(stage_)]; }

 private:
  int stage_;
  std::vector<std::int64_t> ends_;  // by stage: one more than its last layer
};

// What a stage is called in reports and errors: "pipeline stage 1".
LAYERCAST_PUBLIC std::string StageName(int stage);

// Stands for a part of the model that other stages hold. It has no parameters, and accepts every name below it
// unchecked. Resource, as every Module.
class LAYERCAST_PUBLIC PPMissingLayer final : public Module {
 public:
  // `held_by`: "pipeline stage 1".
  explicit PPMissingLayer(std::string held_by) : Module("PPMissingLayer"), held_by_(std::move(held_by)) {}
  std::string_view held_by() const override { return held_by_; }

 private:
  std::string held_by_;
};

}  // namespace layercast
