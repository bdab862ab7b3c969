// The digest that names what a rank serves. It is combined from one digest for each kernel tensor, so that it can also
// be computed for bytes that are never in memory all at once. Used by committers and CapturedBuffers.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "engine_side/reload/layout/kernel_layout.h"
#include "layercast/version.h"

namespace layercast {

struct NamedDigest {
  std::string_view name;
  Digest digest;  // of the tensor's row-major bytes
};

// The digest of one line for each tensor, "<name> <digest in hex>\n", in the order of their names.
Digest CombineDigests(std::vector<NamedDigest> tensors);
// Likewise. `digests` has one for each kernel tensor, in the layout's order.
Digest CombineDigests(const KernelLayout& layout, std::span<const Digest> digests);

}  // namespace layercast
