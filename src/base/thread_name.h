// Names the calling thread, as `ps -L`, debuggers and docs/ list it.
#pragma once

#include <pthread.h>

namespace layercast {

// At most 15 characters.
inline void NameThisThread(const char* name) { ::pthread_setname_np(::pthread_self(), name); }

}  // namespace layercast
