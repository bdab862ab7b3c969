// The bracket around updates that controllers know from other engines (`start_weight_update`, `finish_weight_update`),
// including the error texts for its misuse. Used by the engine's service.
#pragma once

#include <atomic>

#include "layercast/error.h"

namespace layercast {

// Resource; thread-safe.
class UpdateBracket {
 public:
  void Start() {
    if (!updating_.exchange(true)) return;
    throw Error(ErrorCode::kFailedPrecondition,
                "start_weight_update called while a weight update is already active. Call finish_weight_update first.");
  }
  void ExpectStarted() const {
    if (updating_) return;
    throw Error(ErrorCode::kFailedPrecondition, "start_weight_update must be called before update_weights.");
  }
  void Finish() {
    if (updating_.exchange(false)) return;
    throw Error(ErrorCode::kFailedPrecondition, "finish_weight_update called without a matching start_weight_update.");
  }

 private:
  std::atomic<bool> updating_{false};
};

}  // namespace layercast
