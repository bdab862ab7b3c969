// What the parts of an offer service share and work with.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "layercast/memory.h"
#include "src/base/failpoint.h"
#include "src/base/threads/worker_pool.h"
#include "src/net/keys/signing_key.h"
#include "src/session/link/device_bytes.h"
#include "src/session/link/outbox.h"
#include "src/session/schedules/asked_schedules.h"
#include "src/transport/channel/channel.h"

namespace layercast {

// Value; all that it refers to outlives those parts, and is thread-safe.
struct ServeContext {
  WorkerPool& pool;
  FailPoints& failpoints;
  Outbox& outbox;
  MemoryResource& arena;  // for streams' windows, and for what a failpoint corrupts; a channel's own, if one has any
  DeviceBytes* device;    // null: nothing that is offered lies on one
  std::span<OfferingEnd* const> ends;
  AskedSchedules& asked;
  const SigningKey* signing = nullptr;                               // null: nothing is signed
  std::function<std::uint64_t(std::uint64_t count)> take_offer_ids;  // the first of `count` that nobody else uses
};

}  // namespace layercast
