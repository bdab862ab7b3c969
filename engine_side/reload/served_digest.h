// The digest that names what a rank serves. It is put together of one digest for each kernel tensor, so that bytes that
// are never in memory all at once can have it too.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "engine_side/reload/kernel_layout.h"
#include "layercast/version.h"

namespace layercast {

struct NamedDigest {
  std::string_view name;
  Digest digest;  // of the row-major bytes
};

// Of one line for each tensor, "<name> <digest in hex>\n", in the order of their names.
Digest CombineDigests(std::vector<NamedDigest> tensors);
// `digests`: by kernel tensor, in the layout's order.
Digest CombineDigests(const KernelLayout& layout, std::span<const Digest> digests);

}  // namespace layercast
