// The walk over a stream: takes each tensor as the publisher comes to it, the chunks of it that the schedule wants, and
// checks all digests against the trailer at the end. Used by the fetching half of a session.
#pragma once

#include "src/session/chunk_receiver.h"

namespace layercast {

// No chunk of the schedule holds regions of two tensors.
void FetchStream(ChunkReceiver& receiver);

}  // namespace layercast
