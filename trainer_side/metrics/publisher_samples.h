// What a publisher tells Prometheus. Used by the publisher, whenever it is asked.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/metrics/metric_samples.h"
#include "src/session/takers/taker_tally.h"
#include "src/wire/frames.h"

namespace layercast {

// What a publisher knows of itself just now. Value.
struct PublisherLook {
  wire::VersionsAnswer versions;
  TakerCounts takers;
  std::uint64_t published = 0;  // versions, since it began
  std::size_t orders = 0;       // that wait
  std::uint64_t now_ms = 0;     // since 1970
};

MetricSamples PublisherSamples(const PublisherLook& look);

}  // namespace layercast
