// A slot of adapters as its rank lends it: the factors of the terms that the adapter has, and all ranks and scales, as
// buffers that a rank of the same layout takes as they are. Used by the rank's adapters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine_side/adapters/adapter_slots.h"
#include "layercast/captured_buffers.h"
#include "layercast/model/module.h"
#include "layercast/version.h"

namespace layercast {

// The indices of the terms for which the slot holds something.
std::vector<std::size_t> TermsIn(const AdapterSlots& slots, std::size_t slot);
// The factors of these terms, and `numbers`, which are all of a slot.
CapturedBuffers BuffersToLend(const AdapterSlots& slots, std::size_t slot, std::span<const std::size_t> terms,
                              std::span<AdapterNumbers> numbers);
// A tree whose parameters are called as these buffers.
std::unique_ptr<Module> TreeOfBuffers(const CapturedBuffers& buffers);
// LoadedAdapter::digest of what the slot holds.
Digest DigestOfSlot(const AdapterSlots& slots, std::size_t slot);
// Under which lineage and step a rank lends a slot.
Version LentAs(std::size_t slot);

}  // namespace layercast
