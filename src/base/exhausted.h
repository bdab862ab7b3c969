// Errors about what has run out: memory, descriptors, threads. They are made here, so that each of them says what was
// asked for and what there was. Used wherever something is asked of the system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "layercast/error.h"

namespace layercast {

// All are kResourceExhausted, and none allocates more than its words. `what` opens the message: "cannot map 'a.bin'".
// `bytes`: 0 if it is not known how many.
Error OutOfMemory(const std::string& what, std::uint64_t bytes);
// `count`: how many descriptors beyond those that are open.
Error OutOfDescriptors(const std::string& what, std::size_t count = 1);
Error OutOfThreads(const std::string& what);

// What a system call has failed with, by its errno: one of those above, or `otherwise` with the system's words.
Error SystemError(int error, ErrorCode otherwise, const std::string& what, std::uint64_t bytes = 0);

// For libraries that end the process where they get none. Throws one of the errors above unless this process may now
// have so many more descriptors, threads and bytes.
struct Needed {
  std::size_t descriptors = 0;
  std::size_t threads = 0;
  std::size_t bytes = 0;
};
void ExpectRoomFor(const Needed& needed, const std::string& what);

}  // namespace layercast
