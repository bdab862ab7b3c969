// The walk over a stream, or over those of several publishers at once: takes each tensor as its publisher comes to it,
// and the chunks of it that the schedule wants. Used by the fetching half of a session.
#pragma once

#include <memory>
#include <span>

#include "src/session/chunk_receiver.h"
#include "src/session/shared_schedule.h"

namespace layercast {

// `receivers`: by publisher. No chunk of the schedule holds regions of two tensors. Of what has come, that of the
// publisher that is furthest behind is taken first; none is kept waiting for another, since its trainer may be.
void FetchStream(std::span<const std::unique_ptr<ChunkReceiver>> receivers, const SharedSchedule& schedule);

}  // namespace layercast
