// How far behind its publisher an engine may be where a caller asks for a bound (`max_staleness`, RPC.md): judged by
// what the publisher said last, if that is not too long ago. Pure functions.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "layercast/error.h"
#include "layercast/version.h"
#include "src/base/deadline.h"
#include "src/control/json_forms.h"
#include "src/wire/frames.h"

namespace layercast {

// Value.
struct StalenessBound {
  std::uint64_t steps = 0;  // behind the newest that the publisher offers
  // How long before the call the publisher may have been heard: what it said earlier is not known any more.
  std::chrono::milliseconds heard_within{30'000};
};

// That of the call: `max_staleness` {"steps", "heard_within_ms"} of its params, else the engine's own. Throws
// kInvalidArgument on a number out of its bounds.
std::optional<StalenessBound> StalenessBoundFrom(const Json& params, const std::optional<StalenessBound>& of_engine);

// What a publisher said, and when. Value.
struct HeardOffer {
  wire::OfferedSince asked;  // of which version
  wire::OfferedVersions offer;
  Deadline::Clock::time_point at;
};

// Why the version may not answer a call that came at `came`, naming it, the newest and the bound; nullopt: it may.
// `heard` is empty if the publisher has not been heard yet, for the reason `silence`.
std::optional<Error> TooStale(const StalenessBound& bound, Deadline::Clock::time_point came, const Version& served,
                              const std::string& publisher, const std::optional<HeardOffer>& heard,
                              const std::string& silence);

}  // namespace layercast
