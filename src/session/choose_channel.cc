#include "src/session/choose_channel.h"

#include <algorithm>

#include "layercast/error.h"
#include "src/base/log.h"

namespace layercast {
namespace {

const wire::ChannelAddress* FindOffered(const wire::Welcome& welcome, std::string_view name) {
  const auto found = std::find_if(welcome.channels.begin(), welcome.channels.end(),
                                  [&](const wire::ChannelAddress& channel) { return channel.name == name; });
  return found == welcome.channels.end() ? nullptr : &*found;
}

}  // namespace

wire::Host MyHost() {
  const HostIdentity mine = HostIdentity::Mine();
  return {mine.boot_id, mine.network, mine.user, mine.process};
}

ChosenChannel ChooseChannel(const wire::Welcome& welcome, std::span<const std::unique_ptr<Transport>> transports,
                            const std::string& forced, Deadline deadline) {
  const HostIdentity mine = HostIdentity::Mine();
  const HostIdentity theirs{welcome.host.boot_id, welcome.host.network, welcome.host.user, welcome.host.process};
  std::string reasons;
  bool known = forced.empty();
  for (const std::unique_ptr<Transport>& transport : transports) {
    const std::string name(transport->name());
    if (!forced.empty() && name != forced) continue;
    known = true;
    std::string reason;
    const wire::ChannelAddress* offered = FindOffered(welcome, name);
    if (offered == nullptr) reason = "the publisher does not offer it";
    if (offered != nullptr && transport->Viable(mine, theirs, reason)) {
      try {
        return {name, transport->Connect(offered->address, deadline)};
      } catch (const Error& error) {
        if (!forced.empty()) throw;
        reason = error.what();
        log::warn("channel {} to publisher {}: {}", name, welcome.publisher, reason);
      }
    }
    reasons += (reasons.empty() ? "" : "; ") + name + ": " + reason;
  }
  if (!known) reasons = "this build has no channel '" + forced + "'";
  throw Error(ErrorCode::kUnsupported, "no data channel to publisher " + welcome.publisher + ": " + reasons);
}

}  // namespace layercast
