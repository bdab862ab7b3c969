// Asks engines for their progress while their reload is under way, and tells it to the controller's caller. Each engine
// is asked over a connection of its own: the call that reloads it waits for nothing but its answer. Used by the
// controller.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "layercast/controller.h"
#include "src/base/threads/bounded_queue.h"
#include "src/net/keys/keys.h"

namespace layercast {

// Resource; one thread only, on which `tell` is called.
class ProgressWatch {
 public:
  // How often an engine is asked.
  static constexpr std::chrono::milliseconds kPeriod{200};

  // `tell` hears of each of the engines; if it is empty, none is asked. If it throws, that is logged, and it hears
  // nothing more. `keys` are those by which engines are asked.
  ProgressWatch(const std::vector<std::string>& endpoints, std::function<void(const EngineProgress&)> tell,
                const Keys& keys = {});
  ~ProgressWatch();
  ProgressWatch(const ProgressWatch&) = delete;
  ProgressWatch& operator=(const ProgressWatch&) = delete;

  bool tells() const { return tell_ != nullptr; }
  // Waits for the outcomes of the engines' reloads, by engine, and tells their progress meanwhile. An engine that
  // succeeds is told last as one that has everything.
  std::vector<EngineOutcome> Await(std::vector<std::future<EngineOutcome>>& under_way);

 private:
  using Ended = std::vector<std::optional<EngineOutcome>>;  // by engine; empty: under way
  void TakeEnded(std::vector<std::future<EngineOutcome>>& under_way, Ended& ended);
  void TellOfWhatCame(const Ended& ended);
  void Tell(const EngineProgress& progress);
  void TellEnd(std::size_t engine, const EngineOutcome& outcome);

  std::function<void(const EngineProgress&)> tell_;  // empty once it threw
  BoundedQueue<EngineProgress> came_{64};            // a full one loses what an engine says: it says more later
  std::vector<std::jthread> watchers_;               // by engine
};

}  // namespace layercast
