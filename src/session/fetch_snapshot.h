// The walk over a snapshot: every chunk of the schedule is asked for, in its order, as many at once as there are
// credits, and delivered in that order. Used by the fetching half of a session.
#pragma once

#include "src/session/chunk_receiver.h"
#include "src/wire/frames.h"

namespace layercast {

// `subscribed`: the publisher's answer to this schedule, with one digest for each chunk.
void FetchSnapshot(const wire::Subscribed& subscribed, ChunkReceiver& receiver);

}  // namespace layercast
