#include "src/session/chunks/kept_chunks.h"

#include "src/base/memory/buffer_for.h"

namespace layercast {
namespace {

std::vector<std::size_t> FirstBytes(const Schedule& schedule) {
  std::vector<std::size_t> first_byte = {0};
  for (const Chunk& chunk : schedule.chunks()) {
    first_byte.push_back(first_byte.back() + static_cast<std::size_t>(chunk.num_bytes));
  }
  return first_byte;
}

}  // namespace

KeptChunks::KeptChunks(const Schedule& schedule, MemoryResource& memory, const std::string& what)
    : schedule_digest_(schedule.digest()),
      first_byte_(FirstBytes(schedule)),
      bytes_(BufferFor(what, memory, first_byte_.back())) {}

std::span<std::byte> KeptChunks::Place(std::uint32_t chunk) const {
  return bytes_.span().subspan(first_byte_[chunk], first_byte_[chunk + 1] - first_byte_[chunk]);
}

}  // namespace layercast
