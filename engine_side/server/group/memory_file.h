// Memory of one rank that outlives its process: a memfd that the engine's parent process holds. From it, a rank that
// died gets back the weights that it served, and what it had staged. Used by the group of ranks.
#pragma once

#include <atomic>
#include <cstddef>
#include <string>

#include "src/base/memory/sleepable_memory.h"
#include "src/base/unique_fd.h"

namespace layercast {

// Hands out memory from the start of the file, in the order of the calls, so that after a restart the same calls return
// the same bytes again. Memory that is given back is reused once all of it was. It is its own host copy: of what is to
// be kept, nothing is given back while it sleeps. Resource; for one allocating thread; Deallocate is thread-safe.
class MemoryFile final : public SleepableMemory {
 public:
  // Creates an empty file. Throws kResourceExhausted.
  static UniqueFd Create(const std::string& name);
  // Maps a file that Create made, in this process or its parent.
  explicit MemoryFile(UniqueFd fd);
  ~MemoryFile() override;
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::byte* Allocate(std::size_t bytes) override;
  void Deallocate(std::byte* address, std::size_t bytes) noexcept override;

  std::size_t Sleep(SleepLevel level) override;
  void Wake() override;
  bool asleep() const override { return asleep_; }

 private:
  std::size_t Held() const;
  void Punch() const;

  UniqueFd fd_;
  std::byte* base_ = nullptr;
  std::size_t used_ = 0;
  std::atomic<std::size_t> blocks_ = 0;  // that are not given back
  bool asleep_ = false;
};

}  // namespace layercast
