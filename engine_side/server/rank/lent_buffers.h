// Buffers of a rank that it lends as they are: its kernel tensors, or a slot of adapters. No copy is kept: each
// borrower walks the buffers themselves, and whoever writes them ends its walk. Used by the lender of weights.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <utility>

#include "layercast/captured_buffers.h"
#include "layercast/noise/noise.h"
#include "layercast/version.h"
#include "src/session/link/offered_version.h"

namespace layercast {

// Resource; thread-safe. Outlives the walks of what it offers.
class LentBuffers {
 public:
  explicit LentBuffers(CapturedBuffers captured = CapturedBuffers::Adopt({})) : captured_(std::move(captured)) {}
  LentBuffers(const LentBuffers&) = delete;
  LentBuffers& operator=(const LentBuffers&) = delete;

  // From now on it is these buffers that are lent.
  void Become(CapturedBuffers captured);
  // Likewise, by whoever holds Write's lock. Borrowers are to add the noise, without what is an
  // engine's own of it.
  void Become(CapturedBuffers captured, const std::optional<Noise>& noise,
              const std::unique_lock<std::shared_mutex>& writing);
  // What the buffers hold now, until they are written, as a stream under that lineage and step, with its noise.
  std::shared_ptr<OfferedVersion> Offered(const Version& as, const std::string& config);
  // A lock that whoever writes the buffers must hold. Waits while a tensor is being read; walks under way then fail.
  std::unique_lock<std::shared_mutex> Write();

 private:
  class Walk;

  std::shared_mutex buffers_;   // locked shared by those who read the buffers
  CapturedBuffers captured_;    // guarded by buffers_
  std::optional<Noise> noise_;  // likewise
  // Incremented when somebody is about to write the buffers, and again once the lock is held. A walk over what was lent
  // at another count fails.
  std::atomic<std::uint64_t> writes_{0};
};

}  // namespace layercast
