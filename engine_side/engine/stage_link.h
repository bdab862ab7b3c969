// What a rank of one pipeline stage hands to the rank of the next one that has its place there: the residual stream.
// Beside the collective, which is between the ranks of one stage. Used by the decoder; torch-free.
#pragma once

#include <span>

namespace layercast {

// Resource; one thread only (each rank has its own). Spans arrive whole and in order; both ends agree on their sizes.
// A call throws kUnavailable or kDeadlineExceeded, naming the rank that did not come; after that every call throws.
class StageLink {
 public:
  virtual ~StageLink() = default;

  // values := what the stage before this one has sent. Not for the first stage.
  virtual void Receive(std::span<float> values) = 0;
  // To the next stage, which need not take it yet: `values` are the caller's again. Waits while the next stage is too
  // far behind. Not for the last stage.
  virtual void Send(std::span<const float> values) = 0;
};

}  // namespace layercast
