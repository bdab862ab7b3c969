// The data channels of this build that two ends on this host take by default. Tests of code above the channels run over
// all of these.
#pragma once

#include <string>
#include <vector>

#include "src/transport/all/transports.h"
#include "src/transport/channel/channel.h"

namespace layercast::testing {

inline std::vector<std::string> ChannelsHere() {
  const HostIdentity mine = HostIdentity::Mine();
  std::vector<std::string> names;
  for (const auto& transport : AllTransports()) {
    if (transport->WhyNotHere().empty() && transport->ByDefault(mine, mine)) names.emplace_back(transport->name());
  }
  return names;
}

}  // namespace layercast::testing
