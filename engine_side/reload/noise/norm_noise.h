// The part of an engine's install step that adds a version's noise to its norms: when a layer is whole and before its
// sink closes it, so under every commit policy, for whatever source, and between the same two forward steps as all
// else. It always starts from the norms as published, so noise never accumulates. Used by the pipeline and the stager.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "engine_side/reload/layout/kernel_layout.h"
#include "engine_side/reload/layout/layer_sink.h"
#include "engine_side/reload/noise/clean_norms.h"
#include "engine_side/reload/noise/norms.h"
#include "engine_side/reload/work/stage_work.h"
#include "layercast/captured_buffers.h"
#include "layercast/memory.h"
#include "layercast/noise/noise.h"

namespace layercast {

// Resource; one thread at a time. What it borrows outlives it.
class NormNoise {
 public:
  // `kept`: memory that outlives the process, taken at once; null: memory of `host`, taken by the first noise.
  NormNoise(const Module& model, const KernelLayout& layout, MemoryResource* kept, MemoryResource& host);

  // Begins a version. Throws kUnsupported if it has noise and the tree has no RMS norm, as that of a host program's own
  // loader.
  void Begin(const std::optional<Noise>& noise);
  // To be called when those tensors of a layer are in the sink as they were published.
  void Install(std::span<const KernelTensor> tensors, const LayerSink& sink, StageWork& work);
  // To be called when all layers are there.
  void Finish();
  // Puts the digests of the published bytes in the place of those that the norms have with their noise. `digests` has
  // one for each kernel tensor.
  void PutCleanDigests(std::span<Digest> digests) const;

  // A layer that a partial version leaves out: writes its published bytes to `to`. False if they are those that are
  // served.
  bool WriteClean(const KernelTensor& tensor, std::span<std::byte> to, StageWork& work) const;

  // What follows the receiver: see CleanNorms.
  void Become();
  void RollBack();
  void Settle();
  void Lose();
  // What the captured buffers have, and what is staged; empty: the clean version.
  std::optional<Noise> served() const;
  std::optional<Noise> staged() const;
  // The engine's buffers, but for norms that are served with noise, in whose place the published ones are.
  CapturedBuffers Clean(const CapturedBuffers& captured) const;

 private:
  const Norm* FindNorm(const KernelTensor& tensor) const;
  void TakeMemory(MemoryResource& memory);

  const KernelLayout& layout_;
  MemoryResource& host_;
  const std::vector<Norm> norms_;
  std::optional<CleanNorms> clean_;  // empty until there was noise
  std::optional<Noise> installing_;
};

}  // namespace layercast
