// The schedules that receivers asked for of the newest versions. The next version's chunks are digested for them before
// it is offered, while its bytes are being read anyway, and not while receivers wait. Used by the offer service.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "layercast/version.h"
#include "src/base/threads/worker_pool.h"
#include "src/session/link/offered_version.h"
#include "src/wire/schedule.h"

namespace layercast {

// Resource; thread-safe.
class AskedSchedules {
 public:
  // A receiver asks for that of a version with this layout.
  void Note(const Digest& layout, const Digest& digest, const std::shared_ptr<const Schedule>& schedule);
  // The digests for what was asked of the last version with this layout that anybody asked for. So many schedules are
  // digested that together they read the version twice, the one asked for last first; the rest is left for later.
  DigestsBySchedule DigestsOf(const Digest& layout, const Offer& next, WorkerPool& pool);

 private:
  struct Asked {
    Digest digest;
    std::shared_ptr<const Schedule> schedule;  // the other owners are the desk's cache and sessions
  };
  std::vector<Asked> Take(const Digest& layout);

  std::mutex mutex_;
  Digest layout_;             // guarded by mutex_, as is what follows
  std::vector<Asked> asked_;  // the latest is last
  bool of_last_ = false;      // asked_ is of a version before the one that is offered now
};

}  // namespace layercast
