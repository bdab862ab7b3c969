// Normalization layers. Used by model families. Resources, as every Module.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "layercast/export.h"
#include "layercast/model/layer_context.h"
#include "layercast/model/module.h"

namespace layercast {

// An RMS norm, "weight" [size], whole on every rank: x / sqrt(mean(x^2) + epsilon), multiplied as NormStyle says.
class LAYERCAST_PUBLIC RMSNorm : public Module {
 public:
  RMSNorm(const LayerContext& context, std::int64_t size, double epsilon = 1e-6);
  double epsilon() const { return epsilon_; }
  NormStyle style() const { return style_; }
  // Of the whole norm, the first channel that this rank holds.
  std::int64_t first_channel() const { return first_channel_; }

 protected:
  RMSNorm(std::string class_name, const LayerContext& context, std::int64_t local_size, ShardAxis axis, double epsilon);
  void SetFirstChannel(std::int64_t channel) { first_channel_ = channel; }

 private:
  double epsilon_;
  NormStyle style_;
  std::int64_t first_channel_ = 0;
};

// An RMS norm, "weight" [size / parts], over `size` elements of which ranks hold equal parts. The mean is taken over
// all parts. If there are more ranks than parts, tp_size / parts neighbouring ranks hold the same part.
class LAYERCAST_PUBLIC ParallelRMSNorm final : public RMSNorm {
 public:
  ParallelRMSNorm(const LayerContext& context, std::int64_t size, std::int64_t parts, double epsilon);
  std::vector<PlacedPiece> Place(std::string_view name, std::string_view shard_id,
                                 const TensorSpec& spec) const override;
  // How many elements all ranks hold together. A part that several ranks hold counts once for each.
  std::int64_t total_size() const { return size_ * replicas_; }

 private:
  std::int64_t size_, replicas_, part_;
};

}  // namespace layercast
