// One rank process, as the engine's parent process sees it: started, called, watched, ended.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine_side/server/json_stream.h"
#include "layercast/error.h"
#include "src/base/deadline.h"

namespace layercast {

struct RankLaunch {
  std::string program;                                   // to execute
  std::vector<std::string> arguments;                    // before the ones that name the descriptors
  std::vector<std::pair<std::string, int>> descriptors;  // flag ("--weights-fd") and what it hands over
  int rank = 0;
  bool keep_failpoints = true;  // false: a restarted rank arms none
  // Called on the reading thread whenever the rank says how far it has got. May be empty.
  std::function<void(std::uint64_t bytes, std::uint64_t bytes_total)> on_progress;
};

// What a call came to.
struct RankAnswer {
  Json result;
  std::optional<Error> error;
};

// Resource; thread-safe.
class RankHandle {
 public:
  // Throws kUnavailable if it cannot be started. The kernel ends it with the thread that has made it.
  explicit RankHandle(const RankLaunch& launch);
  ~RankHandle();  // kills it, and reaps it
  RankHandle(const RankHandle&) = delete;
  RankHandle& operator=(const RankHandle&) = delete;

  int rank() const { return rank_; }
  pid_t pid() const { return pid_; }
  bool alive() const { return alive_.load(); }

  // Takes what a call came to; called once, on whatever thread learns it, under no lock. Does not throw.
  using TakeAnswer = std::function<void(RankAnswer answer)>;
  // The answer comes, or the rank's error, or kUnavailable when it has died or fallen silent; of one that could not
  // start, what it said of it.
  void Call(const std::string& method, const Json& params, TakeAnswer take);
  // {"bytes", "bytes_total"} that it had received when it last said so, since the latest "stage"; null before that.
  Json progress();
  // Ends it at once: calls under way fail.
  void Kill();
  // Of one that was killed: returns when it is gone, and its memory is nobody's any more.
  void Reap();
  // Ends it: asks, waits until `grace`, then as Kill and Reap.
  void End(Deadline grace);

 private:
  void Read();
  TakeAnswer TakerOf(const Json& message);
  void Watch(const std::stop_token& stop);
  void Lose(const Error& why);
  Error Gone(const std::string& how) const;
  std::string HowItEnded() const;
  void SendKill();

  const int rank_;
  const std::function<void(std::uint64_t, std::uint64_t)> on_progress_;
  pid_t pid_ = -1;
  std::unique_ptr<JsonStream> stream_;
  std::atomic<bool> alive_{true};
  std::atomic<bool> ending_{false};  // its end is wanted
  std::mutex reaping_;
  bool reaped_ = false;  // guarded by reaping_
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::uint64_t last_id_ = 0;                    // guarded by mutex_
  std::map<std::uint64_t, TakeAnswer> waiting_;  // guarded by mutex_
  Deadline::Clock::time_point last_heard_;       // guarded by mutex_
  std::chrono::milliseconds silence_;            // that counts as its loss; guarded by mutex_
  Json progress_;                                // guarded by mutex_
  std::optional<Error> lost_;                    // why it is not alive; guarded by mutex_
  std::thread reader_;
  std::jthread watcher_;
};

// Hears of each rank's answer, in the order in which they come; on the calling thread.
using HearAnswer = std::function<void(std::size_t rank, const RankAnswer& answer)>;

// Calls every rank and waits for all of them. Errors begin with "rank 1: ". `heard` may be empty.
std::vector<RankAnswer> TryAll(std::vector<std::unique_ptr<RankHandle>>& ranks, const std::string& method,
                               const Json& params, Deadline deadline, const HearAnswer& heard = {});
// The same. Throws the first failure by rank order, prefixed "rank 1: "; by then all
// have answered, failed, or passed the deadline (kDeadlineExceeded names the method and the rank).
std::vector<Json> CallAll(std::vector<std::unique_ptr<RankHandle>>& ranks, const std::string& method,
                          const Json& params, Deadline deadline);

}  // namespace layercast
