// One-sided reads by UCX itself, over shared memory: what UCX allocates there a reader loads from, by a key and without
// the publisher's doing anything, as an RDMA device would read. So all but the devices is real. Never outside tests:
// these keys are good for ever, and a reader that is lied to ends.
#pragma once

#include <memory>

#include "src/transport/ucx/ucx_one_sided.h"

namespace layercast::test {

ucx_channel::ReadLanes PosixLanes();

// Its publishers' memory has an arena.
std::shared_ptr<const ucx_channel::OneSided> MakePosixOneSided();

}  // namespace layercast::test
