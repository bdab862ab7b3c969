// What is known of peers, as `layercast status`, `layercast top` and dashboards have it (docs/cli.md).
#pragma once

#include <vector>

#include "src/control/json_forms.h"
#include "src/control/watch/peer_watch.h"
#include "src/wire/frames.h"

namespace layercast {

// What `layercast status --publisher` prints.
Json PublisherToJson(const wire::StatusAnswer& answer);
// What `layercast top` prints: {"engines": [...], "publishers": [...]}.
Json PeersToJson(const std::vector<PeerState>& peers);

}  // namespace layercast
