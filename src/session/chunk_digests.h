// The digests of chunks: a publisher computes them of a version's bytes for a schedule, a receiver of what arrived.
#pragma once

#include <span>

#include "src/tensor/manifest.h"
#include "src/tensor/region.h"
#include "src/transport/channel.h"
#include "src/wire/schedule.h"

namespace layercast {

// Where a region of an offered tensor lies. Throws kInvalidArgument if it leaves the tensor.
RegionView ViewOf(const OfferedTensor& tensor, const Region& region);

// The digest of a chunk in host memory: of its regions' bytes, one after the other, rows packed.
Digest ChunkDigest(std::span<const Region> regions, std::span<const OfferedTensor> tensors);
Digest DigestOfViews(std::span<const RegionView> views);

// Throws kInvalidArgument unless every region lies inside a tensor of the manifest, no chunk is empty and, for a
// stream, no chunk holds two tensors.
void CheckSchedule(const Schedule& schedule, const Manifest& manifest, bool stream);

}  // namespace layercast
