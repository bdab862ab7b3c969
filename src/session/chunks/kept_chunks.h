// The chunks of one schedule, packed one after the other in memory of their own. The thread that fetches them fills it.
// A relay serves them on (relayed_chunks.h), and a receiver that keeps its source takes the next version's deltas of
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "layercast/memory.h"
#include "src/wire/schedule.h"

namespace layercast {

// Resource. One thread fills it; nobody else reads a chunk before that is there.
class KeptChunks {
 public:
  // Allocates memory for all chunks. `what` names them in the error if `memory` does not have that much:
  // kResourceExhausted.
  KeptChunks(const Schedule& schedule, MemoryResource& memory, const std::string& what);
  virtual ~KeptChunks() = default;
  KeptChunks(const KeptChunks&) = delete;
  KeptChunks& operator=(const KeptChunks&) = delete;

  const Digest& schedule_digest() const { return schedule_digest_; }
  std::size_t size() const { return first_byte_.size() - 1; }
  // Where chunk number `chunk` goes.
  std::span<std::byte> Place(std::uint32_t chunk) const;
  // Called once all chunks up to and including this one are there and verified.
  virtual void Ready(std::uint32_t /*chunk*/) {}

 private:
  const Digest schedule_digest_;
  const std::vector<std::size_t> first_byte_;  // of each chunk; one more at the end
  const Buffer bytes_;
};

}  // namespace layercast
