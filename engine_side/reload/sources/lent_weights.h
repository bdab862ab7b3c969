// Kernel tensors that another engine's rank lends (server/weights_lender.h), received and copied straight to the sink.
// Scales and derived tensors come as the lender serves them, and nothing is quantized again. Used by the stager.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <vector>

#include "engine_side/reload/layout/kernel_layout.h"
#include "engine_side/reload/layout/layer_sink.h"
#include "engine_side/reload/work/stage_work.h"
#include "src/session/fetch/fetch_sink.h"
#include "src/tensor/manifest/manifest.h"
#include "src/wire/schedule.h"

namespace layercast {

// A schedule of every tensor, whole, in chunks that are of one tensor each and of at most `chunk_bytes`.
Schedule WholeTensors(const Manifest& manifest, std::uint64_t chunk_bytes);

// Resource; one thread only. Each tensor is closed in the sink by itself, when its last byte has come.
class LentTensors final : public FetchSink {
 public:
  // `schedule` must be WholeTensors of `manifest`, whose tensors must be those of `layout`. All arguments must outlive
  // this.
  LentTensors(const Manifest& manifest, const Schedule& schedule, const KernelLayout& layout, LayerSink& sink,
              StageWork& work);

  void OnTensor(std::uint32_t tensor, float amax, const Digest& digest) override;
  void OnAxisAmax(std::uint32_t /*tensor*/, std::span<const float> /*amax*/) override {}
  void OnChunk(std::uint32_t chunk, std::span<const RegionView> regions) override;

  // To be called when everything has come. Throws kCorrupt, naming a tensor, if it has not.
  void Finish() const;

 private:
  void Close(std::uint32_t tensor);

  const Manifest& manifest_;
  const Schedule& schedule_;
  LayerSink& sink_;
  StageWork& work_;
  std::vector<const KernelTensor*> kernel_;  // by the manifest's tensor
  std::vector<std::uint64_t> received_;      // bytes, by the manifest's tensor
  std::set<std::uint32_t> closed_;
};

}  // namespace layercast
