// What a transfer brought, from whom, and what it cost the trainer. Part of reports. Value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace layercast {

// What came from one publisher of a version.
struct PublisherShare {
  std::string endpoint;
  std::string channel;
  std::uint64_t bytes = 0;
  std::uint64_t relayed_bytes = 0;    // of `bytes`, those that came from other receivers (relays)
  std::vector<std::string> relays{};  // the endpoints of these receivers, in the order in which bytes came from them
  // What the version cost its trainer, in time and in computing. For a snapshot: the call that copied, checked and
  // offered it. For a stream: all that was done between the yields of its walk. 0: the publisher did not say.
  double held_up_seconds = 0;
  double core_seconds = 0;
  // What the trainer's process computed to serve this receiver, and others at the same time: digests, magnitudes,
  // sending. 0: the publisher did not say.
  double serving_core_seconds = 0;
};

}  // namespace layercast
