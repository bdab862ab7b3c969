// How far a reload has come. Receivers and controllers tell it to callbacks while the reload is under way, and engines
// in their status. Values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "layercast/version.h"

namespace layercast {

// Of one rank, or of all ranks of an engine together. Within a reload, `bytes` and `layers` never decrease. After the
// last byte they equal their totals.
struct ReloadProgress {
  Version version{};  // that is being loaded, as far as it is known: a publisher's once it was reached, a checkpoint's
                      // digest at its end
  std::string stage{};             // "connect", "plan", "receive", "verify" or "commit" (kReloadStages)
  std::uint64_t bytes = 0;         // received and processed
  std::uint64_t bytes_total = 0;   // 0: not known, as before the plan is made
  std::uint64_t layers = 0;        // processed. Tensors in kernel format count once all of them are there
  std::uint64_t layers_total = 0;  // without those that a partial version leaves out; 0: not known

  bool operator==(const ReloadProgress&) const = default;
};

// Of one of a controller's engines.
struct EngineProgress {
  std::string endpoint{};
  std::size_t engine = 0;               // its index among the controller's endpoints
  std::string state{};                  // "receiving", "staged", "committing"; at last "serving"
  ReloadProgress all{};                 // sums over the ranks, whose totals are known at the same time; the stage is
                                        // that of the slowest rank
  std::vector<ReloadProgress> ranks{};  // of each rank, without the version
};

}  // namespace layercast
