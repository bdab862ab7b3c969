// The walk over a stream, or over those of several publishers at once. It takes each tensor when its publisher comes to
// it: the chunks of it that the schedule wants. Used by the fetching half of a session.
#pragma once

#include <memory>
#include <span>

#include "src/session/fetch/chunk_receiver.h"
#include "src/session/fetch/shared_schedule.h"

namespace layercast {

// `receivers` has one for each publisher. No chunk of the schedule may hold regions of two tensors. Of what has come,
// the tensor of the publisher that is furthest behind is taken first. No publisher is kept waiting for another, since
// its trainer would wait too.
void FetchStream(std::span<const std::unique_ptr<ChunkReceiver>> receivers, const SharedSchedule& schedule);

}  // namespace layercast
