// Tells ThreadSanitizer that a message is received after it was sent: it cannot see that itself, because libzmq is not
// built with it, and both ends of a session may be in one process, as in tests. Called where messages of a session
// leave and come, which order the accesses to memory that both ends share. Does nothing in other builds.
#pragma once

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>

namespace layercast {
inline char message_order = 0;  // what all messages are ordered by
inline void MessageLeaves() { __tsan_release(&message_order); }
inline void MessageHasCome() { __tsan_acquire(&message_order); }
}  // namespace layercast
#else
namespace layercast {
inline void MessageLeaves() {}
inline void MessageHasCome() {}
}  // namespace layercast
#endif
