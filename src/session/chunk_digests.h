// The digests of chunks: what a publisher computes of a version's bytes for one schedule, and a receiver of what came.
#pragma once

#include <span>

#include "src/tensor/manifest.h"
#include "src/tensor/region.h"
#include "src/transport/channel.h"
#include "src/wire/schedule.h"

namespace layercast {

// Where a region of an offered tensor lies. Throws kInvalidArgument when it leaves the tensor.
RegionView ViewOf(const OfferedTensor& tensor, const Region& region);

// Of a chunk in host memory: its regions' bytes, one after the other, rows packed.
Digest ChunkDigest(std::span<const Region> regions, std::span<const OfferedTensor> tensors);
Digest DigestOfViews(std::span<const RegionView> views);

// Throws kInvalidArgument unless every region lies inside a tensor of the manifest, no chunk is empty and, for a
// stream, no chunk holds two tensors.
void CheckSchedule(const Schedule& schedule, const Manifest& manifest, bool stream);

}  // namespace layercast
