// What a transfer brought, from whom, in which form, and what it cost the trainer. Part of reports. Values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "layercast/export.h"
#include "layercast/version.h"

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

// Whether a receiver that keeps its source takes what changed since then, and not all bytes (docs/delta.md).
enum class DeltaUse : std::uint8_t {
  kAuto,    // where that is estimated to take less time
  kAlways,  // wherever a publisher has it
  kNever,
};

// Their names are "auto", "always" and "never". DeltaUseNamed throws kInvalidArgument, listing them, for any other.
LAYERCAST_PUBLIC DeltaUse DeltaUseNamed(std::string_view name);
LAYERCAST_PUBLIC std::string_view DeltaUseName(DeltaUse use);
LAYERCAST_PUBLIC std::vector<std::string> KnownDeltaUses();

// In which form a version came to a receiver that keeps its source.
struct DeltaChoice {
  bool taken = false;               // as deltas; false: dense
  std::string why{};                // in one line
  Version base{};                   // what the receiver kept; without a lineage if it kept nothing
  std::uint64_t dense_bytes = 0;    // of the chunks
  std::uint64_t encoded_bytes = 0;  // of their deltas; 0: the publisher did not say
  double estimated_dense_ms = 0;    // 0: not estimated
  double estimated_delta_ms = 0;
  double took_ms = 0;  // asking, receiving, applying and verifying, without what was then done with the bytes
};

}  // namespace layercast
