// One rank process, as seen by the engine's parent process, which starts, calls, watches and ends it.
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

#include "engine_side/server/group/json_stream.h"
#include "engine_side/server/group/silence.h"
#include "layercast/error.h"
#include "src/base/deadline.h"

namespace layercast {

struct RankLaunch {
  std::string program;                                   // to execute
  std::vector<std::string> arguments;                    // those that name the descriptors are added after them
  std::vector<std::pair<std::string, int>> descriptors;  // flag ("--weights-fd") and the descriptor for it
  int rank = 0;
  bool keep_failpoints = true;  // false: it arms none
  // Called once, on any thread, when the rank is lost before its end was asked for. May be empty.
  std::function<void(const Error& why)> on_lost;
};

// The outcome of a call. Value.
struct RankAnswer {
  Json result;
  std::optional<Error> error;
  Json progress{};  // where RankGroup::Try failed: what the rank had said of its progress until then
};

// Resource; thread-safe. A process that closes its link or falls silent is lost, and is killed.
class RankHandle {
 public:
  // Starts the process. Throws kUnavailable if it cannot be started. The kernel ends it with the thread that made this.
  explicit RankHandle(const RankLaunch& launch);
  ~RankHandle();  // kills the process and reaps it
  RankHandle(const RankHandle&) = delete;
  RankHandle& operator=(const RankHandle&) = delete;

  int rank() const { return rank_; }
  pid_t pid() const { return pid_; }
  bool alive() const { return alive_.load(); }

  // Takes the outcome of a call. It is called once, under no lock, on whatever thread learns the outcome. It must not
  // throw.
  using TakeAnswer = std::function<void(RankAnswer answer)>;
  // Sends a call to the rank and does not wait for the answer. `take` gets the rank's answer or its error, kUnavailable
  // if the rank has died or fallen silent, or, if the rank could not start, the error that it reported.
  void Call(const std::string& method, const Json& params, TakeAnswer take);
  // ProgressToJson with "attempt", the reload that it is of: how far the rank had come by its last report since the
  // latest "stage" call; null before that.
  Json progress();
  // Kills the process at once; calls under way fail.
  void Kill();
  // After Kill: returns when the process is gone, and with it every mapping of its memory.
  void Reap();
  // Asks the process to end, waits until `grace`, then does as Kill and Reap.
  void End(Deadline grace);

 private:
  void Read();
  void NoteHeard(const Json& message);
  TakeAnswer TakerOf(const Json& message);
  void Watch(const std::stop_token& stop);
  void GiveUp(const Error& why);
  void Lose(const Error& why);
  Error Gone(const std::string& how) const;
  std::string HowItEnded() const;
  void SendKill();
  void EndProcess();

  const int rank_;
  const std::function<void(const Error&)> on_lost_;
  pid_t pid_ = -1;
  std::unique_ptr<JsonStream> stream_;
  std::atomic<bool> alive_{true};
  std::atomic<bool> ending_{false};  // its end was asked for
  std::mutex reaping_;
  bool reaped_ = false;  // guarded by reaping_
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::uint64_t last_id_ = 0;                    // guarded by mutex_
  std::map<std::uint64_t, TakeAnswer> waiting_;  // guarded by mutex_
  Silence silence_;                              // guarded by mutex_
  std::chrono::milliseconds patience_;           // longer silence counts as loss; guarded by mutex_
  Json progress_;                                // guarded by mutex_
  std::optional<Error> lost_;                    // why it is not alive any more; guarded by mutex_
  std::thread reader_;
  std::jthread watcher_;
};

// Is told of each rank's answer on the calling thread, in the order in which the answers come.
using HearAnswer = std::function<void(std::size_t rank, const RankAnswer& answer)>;

// Calls every rank and waits for all of them. Errors begin with "rank 1: ". A rank without an answer by the deadline
// gets kDeadlineExceeded, naming the method. `heard` may be empty.
std::vector<RankAnswer> TryAll(std::vector<std::unique_ptr<RankHandle>>& ranks, const std::string& method,
                               const Json& params, Deadline deadline, const HearAnswer& heard = {});
// Like TryAll, but throws the first error in rank order once all ranks have answered, failed or passed the deadline.
std::vector<Json> CallAll(std::vector<std::unique_ptr<RankHandle>>& ranks, const std::string& method,
                          const Json& params, Deadline deadline);

}  // namespace layercast
