// Hands the residual stream from a rank of one pipeline stage to the rank with the same place in the next stage. The
// collective, in contrast, connects the ranks of one stage. Used by the decoder; torch-free.
#pragma once

#include <span>

namespace layercast {

// Resource; one thread only (each rank has its own). Spans arrive whole and in order; both ends agree on their sizes. A
// call throws kUnavailable or kDeadlineExceeded, naming the rank that did not come; after that every call throws.
class StageLink {
 public:
  virtual ~StageLink() = default;

  // Sets `values` to what the stage before this one has sent. Not for the first stage.
  virtual void Receive(std::span<float> values) = 0;
  // Sends to the next stage, which need not have received it when this returns; `values` may be reused then. Waits
  // while the next stage is too far behind. Not for the last stage.
  virtual void Send(std::span<const float> values) = 0;
};

}  // namespace layercast
