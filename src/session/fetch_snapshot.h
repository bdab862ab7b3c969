// The walk over a snapshot: every chunk of the schedule is asked for, in its order, of each publisher as many at once
// as there are credits, and delivered in that order, put together of what each publisher has of it. Used by the
// fetching half of a session.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "src/session/chunk_receiver.h"
#include "src/session/shared_schedule.h"
#include "src/session/snapshot_part.h"
#include "src/wire/frames.h"

namespace layercast {

// `subscribed`: each publisher's answer to its schedule, with the digests and magnitudes of its first chunks; the
// others come while chunks do. `amax_requests`: of all publishers' tensors, numbered through. `receivers`: of each
// publisher.
void FetchSnapshot(std::vector<wire::Subscribed> subscribed, const SharedSchedule& schedule,
                   std::span<const AmaxRequest> amax_requests,
                   std::span<const std::unique_ptr<ChunkReceiver>> receivers, const RelayAccess& access,
                   FetchSink& sink);

}  // namespace layercast
