// Reads a pickle as data. Nothing is imported, called or built: what Python would call stays a node that says so, and
// any name that is not on the caller's list ends the reading. The loader of `pt` makes tensors of what it finds.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "src/checkpoint/pickle_nodes.h"

namespace layercast {

// `bytes` outlive what is returned, as do the names in `allowed` ("collections.OrderedDict"). `subject` opens every
// message. Throws kCorrupt on bytes that are no pickle, or are more than 100 MB; kUnsupported naming an opcode or a
// global that is not taken. OrderedDict() gives a kDict; attributes that are set on a dict are dropped.
Pickle ReadPickle(std::span<const std::byte> bytes, std::span<const std::string_view> allowed,
                  const std::string& subject);

}  // namespace layercast
