#include "engine_side/server/rank/process/freed_memory.h"

#include <malloc.h>

#include <cstddef>

namespace layercast {
namespace {

constexpr std::size_t kWorthGivingBack = std::size_t{16} << 20;

}  // namespace

// glibc keeps what is freed, for as long as a call goes on that may use it again (KeepFreedMemory in
// cli/rank/rank_program.cc). What lay there may have been as large as the model. To look for a little takes as long as
// a small version, and the next one would have it again.
void GiveFreedMemoryBack() {
  if (::mallinfo2().fordblks >= kWorthGivingBack) ::malloc_trim(0);
}

}  // namespace layercast
