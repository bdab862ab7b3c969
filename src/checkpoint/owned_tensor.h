// A tensor in memory of its own. Used by loaders whose files hold other bytes than the tensor's.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "layercast/memory.h"
#include "layercast/tensor.h"
#include "src/base/memory/buffer_for.h"

namespace layercast {

struct OwnedTensor {
  NamedTensor tensor;
  std::byte* bytes = nullptr;  // its memory, uninitialized; tensor.owner keeps it
};

inline OwnedTensor MakeOwnedTensor(const TensorSpec& spec) {
  struct Block {
    HostMemory memory;
    Buffer buffer;
  };
  auto block = std::make_shared<Block>();
  block->buffer = BufferFor("'" + spec.name + "'", block->memory, static_cast<std::size_t>(spec.num_bytes()));
  std::byte* const bytes = block->buffer.data();
  return {{.name = spec.name,
           .tensor = {.dtype = spec.dtype, .shape = spec.shape, .data = bytes, .device = {}},
           .owner = std::move(block)},
          bytes};
}

}  // namespace layercast
