// Tells ThreadSanitizer that a message is received after it was sent: it cannot see that itself, because libzmq and UCX
// are not built with it, and both ends of a session may be in one process, as in tests. Called where messages of a
// session, and pieces of its chunks, leave and come, which order the accesses to memory that both ends share. Does
// nothing in other builds.
#pragma once

#include <cstddef>
#include <span>

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>

extern "C" {
void __tsan_read_range(void* address, unsigned long bytes);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
}

namespace layercast {
inline char message_order = 0;  // what all messages are ordered by
inline void MessageLeaves() { __tsan_release(&message_order); }
inline void MessageHasCome() { __tsan_acquire(&message_order); }

// While it lives, a library that copies sends these bytes, and reads them by memcpy, which is seen, at a moment that is
// not: before they leave. So they count as read where it begins, and what the library reads is not looked at.
// Resource.
class BytesLeave {
 public:
  explicit BytesLeave(std::span<const std::byte> bytes) {
    __tsan_read_range(const_cast<std::byte*>(bytes.data()), bytes.size());
    MessageLeaves();
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  }
  ~BytesLeave() { AnnotateIgnoreReadsEnd(__FILE__, __LINE__); }
  BytesLeave(const BytesLeave&) = delete;
  BytesLeave& operator=(const BytesLeave&) = delete;
};
}  // namespace layercast
#else
namespace layercast {
inline void MessageLeaves() {}
inline void MessageHasCome() {}

class BytesLeave {
 public:
  explicit BytesLeave(std::span<const std::byte> /*bytes*/) {}
  ~BytesLeave() {}  // NOLINT(modernize-use-equals-default): else its uses would be unused
  BytesLeave(const BytesLeave&) = delete;
  BytesLeave& operator=(const BytesLeave&) = delete;
};
}  // namespace layercast
#endif
