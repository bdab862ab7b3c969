// Kernel tensors that another engine's rank lends (server/weights_lender.h), received and copied straight: scales and
// whatever else was derived come as they are served there, and nothing is quantized again.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <vector>

#include "engine_side/reload/kernel_layout.h"
#include "engine_side/reload/layer_sink.h"
#include "engine_side/reload/stage_work.h"
#include "src/session/fetch.h"
#include "src/tensor/manifest.h"
#include "src/wire/schedule.h"

namespace layercast {

// All of every tensor, in chunks of one tensor each and of at most `chunk_bytes`.
Schedule WholeTensors(const Manifest& manifest, std::uint64_t chunk_bytes);

// Resource; one thread only. Each tensor is closed in the sink by itself, when its last byte has come.
class LentTensors final : public FetchSink {
 public:
  // `schedule` is WholeTensors of `manifest`, whose tensors are those of `layout`. All of it outlives this.
  LentTensors(const Manifest& manifest, const Schedule& schedule, const KernelLayout& layout, LayerSink& sink,
              StageWork& work);

  void OnTensor(std::uint32_t tensor, float amax, const Digest& digest) override;
  void OnAxisAmax(std::uint32_t /*tensor*/, std::span<const float> /*amax*/) override {}
  void OnChunk(std::uint32_t chunk, std::span<const RegionView> regions) override;

  // Everything has come. Throws kCorrupt naming a tensor that has not.
  void Finish() const;

 private:
  void Close(std::uint32_t tensor);

  const Manifest& manifest_;
  const Schedule& schedule_;
  LayerSink& sink_;
  StageWork& work_;
  std::vector<const KernelTensor*> kernel_;  // by tensor of the manifest
  std::vector<std::uint64_t> received_;      // bytes; by tensor
  std::set<std::uint32_t> closed_;
};

}  // namespace layercast
