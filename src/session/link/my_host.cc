#include "src/session/link/my_host.h"

#include "src/transport/channel/channel.h"

namespace layercast {

wire::Host MyHost() {
  const HostIdentity mine = HostIdentity::Mine();
  return {mine.boot_id, mine.network, mine.user, mine.process};
}

}  // namespace layercast
