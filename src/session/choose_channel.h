// Picks the data channel between two ends: the best that both have, or the one that was asked for by name.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/base/deadline.h"
#include "src/transport/channel.h"
#include "src/wire/frames.h"

namespace layercast {

struct ChosenChannel {
  std::string name;
  std::unique_ptr<FetchingEnd> end;
};

// This host, as the handshake carries it.
wire::Host MyHost();

// `forced` empty: any. Throws kUnsupported naming every channel and why it is not viable; with a forced one there is no
// falling back to another.
ChosenChannel ChooseChannel(const wire::Welcome& welcome, std::span<const std::unique_ptr<Transport>> transports,
                            const std::string& forced, Deadline deadline);

}  // namespace layercast
