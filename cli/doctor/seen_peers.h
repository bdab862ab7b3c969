// What `layercast doctor` sees of a publisher and of an engine from here.
#pragma once

#include <optional>
#include <string>

#include "layercast/error.h"
#include "src/base/deadline.h"
#include "src/control/json_forms.h"
#include "src/net/keys/keys.h"
#include "src/session/choose/probe_publisher.h"

namespace layercast::cli {

// Value.
struct PublisherLook {
  std::string endpoint;
  std::optional<Error> error{};  // it cannot be talked to, or does not let itself be measured
  bool offers = false;           // at least one version
  Json version{};                // the newest; null: none
  std::uint64_t bytes = 0;       // of it
  std::optional<PublisherProbe> probe{};
};

// Value.
struct EngineLook {
  std::string endpoint;
  std::optional<Error> error{};
  std::string state{};
  Json version{};            // null: none
  std::string channel{};     // by which it took a version last; empty: none
  std::string warning{};     // of that channel; empty: none
  std::string last_error{};  // of its last reload; empty: it went well
};

// Neither throws for what the peer, or the way to it, is like.
PublisherLook LookAtPublisher(const std::string& endpoint, const Keys& keys, Deadline deadline);
EngineLook LookAtEngine(const std::string& endpoint, const Keys& keys, Deadline deadline);

// How long the newest version takes over the channel that would be chosen, at the rate that was measured, in seconds;
// nothing if that is not known.
std::optional<double> EstimateSeconds(const PublisherLook& publisher);

}  // namespace layercast::cli
