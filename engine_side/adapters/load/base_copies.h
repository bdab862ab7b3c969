// The copies of base weights that PEFT puts beside an adapter of the embedding or the head. They have to be what the
// engine serves: else the base was trained too, and with the adapter alone the engine would compute something else.
// Used by the adapter receiver.
#pragma once

#include <string>
#include <vector>

#include "engine_side/adapters/load/offered_adapter.h"
#include "layercast/captured_buffers.h"
#include "layercast/memory.h"
#include "layercast/model/module.h"
#include "layercast/recorded_model.h"

namespace layercast {

// Resource. Borrows the table of what is served.
class BaseCopies {
 public:
  // Has the recording bring this rank's parts of the copies, cast to what is served. Throws kUnsupported for a copy of
  // a weight that is served quantized, and what resolving a tensor throws.
  BaseCopies(const Module& base, const OfferedAdapter& offered, const CapturedBuffers& served, Recording& recording);

  // Where they land.
  const std::vector<CapturedBuffer>& buffers() const { return buffers_; }
  // Once they have come. Throws kInvalidArgument, naming the tensor, if one differs.
  void Check() const;

 private:
  struct Part {
    std::string tensor;            // of the adapter
    const CapturedBuffer* served;  // whose box `within` it is a copy of
    Box within;
    Buffer memory;
  };

  void Add(const std::string& tensor, std::uint32_t source, const CapturedBuffer& buffer, const PlacedPiece& piece,
           Recording& recording);

  const CapturedBuffers& served_;
  HostMemory host_;
  std::vector<Part> parts_;
  std::vector<CapturedBuffer> buffers_;  // one of each part
};

}  // namespace layercast
