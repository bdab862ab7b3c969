// What `layercast top` shows: a function of what is known of the peers and of the terminal's size.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "src/control/watch/peer_watch.h"

namespace layercast::cli {

// Lines of at most `width` columns, without control characters, whatever the peers call themselves.
std::vector<std::string> TopFrame(const std::vector<PeerState>& peers, std::size_t width);

}  // namespace layercast::cli
