// Publishers whom somebody has asked already what they offer, to look at it before there was a receiver for it. Used by
// loads of adapters, where what is offered decides which receiver takes it.
#pragma once

#include <memory>

#include "engine_side/reload/sources/peer_session.h"
#include "layercast/reload_source.h"
#include "src/session/fetch/fetch.h"

namespace layercast {

// What comes by `session`, which is open and has fetched nothing. `request` says what it was opened for; its attempt
// and its stop are the reload's. What the session was opened with outlives the reload.
ReloadSource FromOpenPublishers(PeerRequest request, std::unique_ptr<FetchSession> session);

}  // namespace layercast
