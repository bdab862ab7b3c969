// Calls that are answered once the engine serves a version or a later one (`wait_for_version`, RPC.md). None waits
// beyond its deadline, nor for a caller that has gone.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>

#include "layercast/version.h"
#include "src/base/deadline.h"
#include "src/control/rpc.h"

namespace layercast {

// Resource; thread-safe. The thread "lc-waits" answers the calls.
class VersionWaits {
 public:
  static constexpr std::size_t kMost = 1024;

  // `served` is asked for on any thread.
  explicit VersionWaits(std::function<std::optional<Version>()> served);
  ~VersionWaits() { Close(); }
  VersionWaits(const VersionWaits&) = delete;
  VersionWaits& operator=(const VersionWaits&) = delete;

  // Answers {"version"} once that is `least` or later, or at the deadline kDeadlineExceeded with what is served then.
  // Throws kResourceExhausted if kMost calls wait already.
  void Add(const Version& least, Deadline deadline, const RpcReply& reply);
  // Says that another version is served now.
  void Notice();
  // Answers those that wait, and that come yet, that the engine was ended.
  void Close();

 private:
  struct Wait {
    Version least;
    Deadline deadline;
    RpcReply reply;
  };
  void Run(const std::stop_token& stop);
  void AnswerSome();
  Deadline::Clock::time_point NextLook() const;

  const std::function<std::optional<Version>()> served_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::list<Wait> waits_;  // guarded by mutex_
  bool noticed_ = false;   // guarded by mutex_
  bool closed_ = false;    // guarded by mutex_
  std::jthread thread_;
};

}  // namespace layercast
