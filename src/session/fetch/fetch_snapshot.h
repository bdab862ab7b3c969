// The walk over a snapshot. It asks for the schedule's chunks in their order, and keeps as many under way at each
// publisher as that has credits. Each chunk is put together from what the publishers have of it, and delivered in the
// schedule's order. Used by the fetching half of a session.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "src/session/fetch/chunk_receiver.h"
#include "src/session/fetch/shared_schedule.h"
#include "src/session/fetch/snapshot_part.h"
#include "src/wire/frames.h"

namespace layercast {

// `subscribed` has each publisher's answer to its schedule, with the digests and magnitudes of its first chunks; the
// others come while chunks do. `amax_requests` number tensors through all publishers. `receivers` has one for each
// publisher, all with the same sink.
void FetchSnapshot(std::vector<wire::Subscribed> subscribed, const SharedSchedule& schedule,
                   std::span<const AmaxRequest> amax_requests,
                   std::span<const std::unique_ptr<ChunkReceiver>> receivers, const RelayAccess& access);

}  // namespace layercast
