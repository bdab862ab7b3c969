// Memory that can be lent back to the system for a while: its bytes go, its addresses stay. So what holds addresses, a
// captured graph above all, is valid again once the memory has woken up. Used for what an engine gives back while a
// trainer has the machine or the device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "layercast/memory.h"

namespace layercast {

// What becomes of the contents. The levels are vLLM's.
enum class SleepLevel : std::uint8_t {
  kKeep = 1,     // a copy waits in host memory, and is there again after Wake
  kDiscard = 2,  // after Wake they are zero
};

// Resource; as MemoryResource, but nobody may touch what was allocated, nor allocate more, from Sleep to Wake. Whoever
// touches it is killed, rather than given zeros.
class SleepableMemory : public MemoryResource {
 public:
  // Gives back what is allocated, and returns how many bytes the system has got. Nothing that is queued on a device may
  // use it any more. Memory that sleeps sleeps on, and gives 0: its first level stands. Throws kResourceExhausted if
  // there is no room for the copy; then it is awake.
  virtual std::size_t Sleep(SleepLevel level) = 0;
  // Takes the bytes again, all of them now, so that a lack of memory shows here and not later. Memory that is awake
  // stays so. Throws kResourceExhausted, and sleeps on then.
  virtual void Wake() = 0;
  virtual bool asleep() const = 0;
};

}  // namespace layercast
