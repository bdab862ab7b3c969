// Blocks of memory of which an error says what they were for. Used for all that grows with a version.
#pragma once

#include <cstddef>
#include <new>
#include <string>

#include "layercast/error.h"
#include "layercast/memory.h"
#include "src/base/exhausted.h"

namespace layercast {

// Throws what `memory` throws, and kResourceExhausted if that is a failed allocation of its own.
inline Buffer BufferFor(const std::string& what, MemoryResource& memory, std::size_t bytes) {
  try {
    return {memory, bytes};
  } catch (const Error& error) {
    throw Error(error.code(), what + ": " + error.what());
  } catch (const std::bad_alloc&) {
    throw OutOfMemory(what, bytes);
  }
}

}  // namespace layercast
