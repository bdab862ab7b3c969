// What `layercast top` shows: a function of what is known of the peers and of the terminal's size.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cli/top/peer_watch.h"

namespace layercast::cli {

// Lines of at most `width` columns, without control characters, whatever the peers call themselves.
std::vector<std::string> TopFrame(const std::vector<PeerState>& peers, std::size_t width);
// {"engines": [...], "publishers": [...]}; docs/cli.md has their fields.
Json TopJson(const std::vector<PeerState>& peers);

}  // namespace layercast::cli
