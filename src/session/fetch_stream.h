// The walk over a stream: takes each tensor as the publisher comes to it, and the chunks of it that the schedule wants.
// Used by the fetching half of a session.
#pragma once

#include "src/session/chunk_receiver.h"

namespace layercast {

// No chunk of the schedule holds regions of two tensors.
void FetchStream(ChunkReceiver& receiver);

}  // namespace layercast
