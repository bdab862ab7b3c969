// What LoRA adapters add to a layer's output, found among the terms of the adapter slots by the names of modules and
// parameters. Used by the descriptions of blocks and by what computes them. Torch-free.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "engine_side/adapters/adapter_slots.h"
#include "layercast/tensor.h"

namespace layercast {

// The terms that add to one layer's output (AdapterTerm), each to rows of its own; those of one expert, if the layer is
// a stack. Value; the slots are borrowed.
struct AdapterOperand {
  const AdapterSlots* slots = nullptr;
  std::size_t first = 0, count = 0;  // of the slots' terms; count 0: adapters cannot change the layer
  std::size_t expert = 0;            // of this rank's

  bool empty() const { return count == 0; }
  AdapterOperand OfExpert(std::size_t index) const { return {slots, first, count, index}; }
};

// Finds the terms of layers, once, as CapturedWeights finds weights. Borrows the slots; one thread only.
class AdapterLookup {
 public:
  // Null: there are no adapters, and nothing is found. Throws kUnsupported if the slots are not on `device`.
  AdapterLookup(const AdapterSlots* slots, const Device& device);

  AdapterOperand Find(std::string_view layer, std::string_view parameter = "weight");
  // Throws kUnsupported, naming the layer, if some term was never found: an adapter of it would change nothing.
  void CheckAllUsed() const;

 private:
  const AdapterSlots* slots_;
  std::vector<bool> used_;  // by term
};

}  // namespace layercast
