// Memory of one rank that outlives its process: a memfd that the engine's parent process holds. A rank that died comes
// back to the weights it served, and to what it had staged. Used by the group of ranks.
#pragma once

#include <cstddef>
#include <string>

#include "layercast/memory.h"
#include "src/base/unique_fd.h"

namespace layercast {

// Hands out memory from the start on, in the order of the calls: the same calls after a restart give the same bytes
// again. What is given back is not used again. Resource; thread-safe for one allocating thread.
class MemoryFile final : public MemoryResource {
 public:
  // A new file, empty. Throws kResourceExhausted.
  static UniqueFd Create(const std::string& name);
  // Maps a file that Create made, here or in the parent process.
  explicit MemoryFile(UniqueFd fd);
  ~MemoryFile() override;
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::byte* Allocate(std::size_t bytes) override;
  void Deallocate(std::byte* address, std::size_t bytes) noexcept override;

 private:
  UniqueFd fd_;
  std::byte* base_ = nullptr;
  std::size_t used_ = 0;
};

}  // namespace layercast
