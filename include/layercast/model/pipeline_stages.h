// Which part of a decoder each stage of a pipeline-parallel engine holds, and what stands for the parts of others. Used
// where a model's tree is put together.
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

// Every stage has neighbouring layers, at least one: those of `pp_layer_partition`, or else equal numbers of them,
// where what remains goes to the stages before the last one, one each from back to front (vLLM's get_pp_indices). The
// first stage has the embedding, the last one the final norm and lm_head, and the draft model where there is one; the
// embedding is on both where it is tied or a draft model shares it. Value.
class LAYERCAST_PUBLIC PipelineStages {
 public:
  // Throws kInvalidArgument, naming both numbers, for a rank that is none, more stages than layers, and a partition
  // that is not one of these layers.
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
  std::vector<std::int64_t> ends_;  // the layer behind the last one of each stage
};

// "pipeline stage 1": who holds what other stages do not.
LAYERCAST_PUBLIC std::string StageName(int stage);

// A part of the model that other stages hold: has no parameters, and takes every name below it without a look.
class LAYERCAST_PUBLIC PPMissingLayer final : public Module {
 public:
  // `held_by`: "pipeline stage 1".
  explicit PPMissingLayer(std::string held_by) : Module("PPMissingLayer"), held_by_(std::move(held_by)) {}
  std::string_view held_by() const override { return held_by_; }

 private:
  std::string held_by_;
};

}  // namespace layercast
