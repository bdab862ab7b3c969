// The calls that an engine makes one at a time, in the order in which they came: those that take long, and those that
// change what it serves. Used by the engine's service.
#pragma once

#include <cstddef>
#include <functional>
#include <thread>
#include <utility>

#include "src/base/deadline.h"
#include "src/base/threads/bounded_queue.h"
#include "src/control/rpc.h"

namespace layercast {

// Resource; thread-safe. The thread "lc-reload" makes the calls.
class SlowCalls {
 public:
  static constexpr std::size_t kMostWaiting = 64;

  struct Call {
    std::function<void()> run;
    RpcReply reply;
    bool lasting;  // to be made though nobody waits for the answer any more
  };
  // What else the thread does: `before` each call, which then fails with what it throws; `between` calls, which must
  // not throw, and at the latest when that is `due`.
  struct Chores {
    std::function<void()> before;
    std::function<void()> between;
    std::function<Deadline()> due;
  };
  explicit SlowCalls(Chores chores) : chores_(std::move(chores)), thread_([this] { Work(); }) {}
  ~SlowCalls() { End(); }
  SlowCalls(const SlowCalls&) = delete;
  SlowCalls& operator=(const SlowCalls&) = delete;

  // Throws kResourceExhausted if too many wait already, and kCancelled after End.
  void Add(Call call);
  std::size_t size() const { return calls_.size(); }  // of those that wait
  // Returns once the calls that wait are made. No further ones are taken.
  void End();

 private:
  void Work();
  void Make(const Call& call) const;

  const Chores chores_;
  BoundedQueue<Call> calls_{kMostWaiting};
  std::thread thread_;
};

}  // namespace layercast
