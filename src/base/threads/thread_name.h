// Names threads, as `ps -L`, debuggers and docs/threads.md list them.
#pragma once

#include <pthread.h>

namespace layercast {

// Names the calling thread. `name` has at most 15 characters.
inline void NameThisThread(const char* name) { ::pthread_setname_np(::pthread_self(), name); }

}  // namespace layercast
