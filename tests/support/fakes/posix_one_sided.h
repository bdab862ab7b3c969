// One-sided reads by UCX itself, over shared memory. With a key, a reader loads from memory that UCX allocates there,
// without any action of the publisher, as an RDMA device would read. So everything but the devices is real. It must not
// be used outside tests: the keys are valid for ever, and a reader that is given a wrong one crashes.
#pragma once

#include <memory>

#include "src/transport/ucx/one_sided/ucx_one_sided.h"

namespace layercast::test {

ucx_channel::ReadLanes PosixLanes();

// One-sided reads over PosixLanes. The publishers that use them have an arena.
std::shared_ptr<const ucx_channel::OneSided> MakePosixOneSided();

}  // namespace layercast::test
