// Reads a pickle as data. Nothing is imported, called or built: a call that Python would make becomes a node that
// describes it, and a name that is not on the caller's list is refused. The loader of `pt` makes tensors from the
// result.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "src/checkpoint/torch_save/pickle_nodes.h"

namespace layercast {

// `bytes`, and the names in `allowed` ("collections.OrderedDict"), must outlive the result. Every message begins with
// `subject`. Throws kCorrupt if the bytes are not a pickle or are more than 100 MB, and kUnsupported, naming an opcode
// or a global that is not accepted. OrderedDict() gives a kDict; attributes that are set on a dict are dropped.
Pickle ReadPickle(std::span<const std::byte> bytes, std::span<const std::string_view> allowed,
                  const std::string& subject);

}  // namespace layercast
