// One budget of bytes for all connections of a process, whichever of its sockets they are at: each socket reports what
// its connections hold, and is told which of them to end. Used by ConnectionLimits.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <vector>

#include "src/net/limits/fair_cuts.h"

namespace layercast {

// Resource; thread-safe. Outlives its shares.
class SharedBudget {
 public:
  static constexpr std::uint64_t kUsual = std::uint64_t{256} << 20;

  // That of this process.
  static SharedBudget& OfProcess();
  // A number for a connection, higher than those of all that were made before.
  static std::uint64_t NextNumber();

  struct Verdict {
    std::vector<std::uint64_t> cut{};  // connections of the socket that has asked
    std::uint64_t most = kUsual;       // that may be held
    bool tight = false;                // a good part of it is
  };

  // One socket's part. Resource; one thread only.
  class Share {
   public:
    // `most` bytes may be held in the process; nullopt: as many as other sockets say, or kUsual. Where sockets say
    // different ones, the least counts.
    Share(SharedBudget& budget, std::optional<std::uint64_t> most);
    ~Share();
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

    // `unhandled`: what the socket's `holders` have, and what connections have left that have ended. What the others
    // have is what they said last.
    Verdict Report(std::vector<Holder> holders, std::uint64_t unhandled);

   private:
    SharedBudget& budget_;
    const std::uint64_t number_;
  };

 private:
  struct Reported {
    std::uint64_t number = 0;  // the share's
    pid_t process = 0;         // a child that was forked has its parent's list, and none of its sockets
    std::optional<std::uint64_t> most{};
    std::vector<Holder> holders{};
    std::uint64_t unhandled = 0;
  };

  std::mutex mutex_;
  std::list<Reported> all_;  // guarded by mutex_
};

}  // namespace layercast
