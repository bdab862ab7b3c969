// A schedule: the ordered chunks that one rank wants of a version. Receiver and publisher identify it by its digest.
// FORMAT.md specifies its encoding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "layercast/version.h"
#include "src/tensor/region.h"

namespace layercast {

// A run of `num_regions` regions of a schedule: the unit of transfer and of digest. The digest of a chunk is taken over
// the packed bytes of its regions, one region after the other. Value.
struct Chunk {
  std::uint32_t first_region = 0;
  std::uint32_t num_regions = 0;
  std::uint64_t num_bytes = 0;
};

// Value.
class Schedule {
 public:
  // Appends one chunk, after bringing its regions into canonical form (rows without gaps become one row; one row has
  // stride 0). Throws kInvalidArgument on a chunk without regions, and on a region without bytes or whose rows overlap.
  void Add(std::span<const Region> regions);

  const std::vector<Chunk>& chunks() const { return chunks_; }
  std::span<const Region> RegionsOf(const Chunk& chunk) const {
    return std::span(regions_).subspan(chunk.first_region, chunk.num_regions);
  }
  const std::vector<Region>& regions() const { return regions_; }
  std::uint64_t total_bytes() const { return total_bytes_; }

  std::vector<std::byte> Encode() const;
  // Throws kCorrupt on anything but what Encode writes. Never reads outside `bytes`, and allocates memory in proportion
  // to their number. Decode(b).Encode() == b. It cannot check that the regions lie inside their tensors: the publisher,
  // which knows the tensors, does that (CheckInside).
  static Schedule Decode(std::span<const std::byte> bytes);
  Digest digest() const;  // of the encoding

 private:
  std::vector<Chunk> chunks_;
  std::vector<Region> regions_;
  std::uint64_t total_bytes_ = 0;
};

}  // namespace layercast
