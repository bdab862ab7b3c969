#include "src/control/progress_watch.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <stop_token>
#include <system_error>
#include <utility>

#include "src/base/log.h"
#include "src/base/threads/thread_name.h"
#include "src/control/progress_forms.h"
#include "src/control/rpc.h"

namespace layercast {
namespace {

using Milliseconds = std::chrono::milliseconds;

constexpr Milliseconds kNow{0};
constexpr Milliseconds kTurn{50};      // between two looks at what engines have said
constexpr Milliseconds kAnswer{5000};  // an engine answers at once, whatever it is doing

// Waits until a stop is requested, `period` at most.
void Pause(const std::stop_token& stop, Milliseconds period) {
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  never.wait_for(lock, stop, period, [] { return false; });
}

std::optional<std::size_t> FirstNotEnded(const std::vector<std::optional<EngineOutcome>>& ended) {
  const auto first = std::ranges::find_if(ended, [](const auto& outcome) { return !outcome; });
  if (first == ended.end()) return std::nullopt;
  return static_cast<std::size_t>(first - ended.begin());
}

// What the engine says of a reload that is under way; empty if none is.
std::optional<EngineProgress> Ask(RpcClient& client, const Deadline& deadline) {
  const Json status = client.Call("status", {{"last_report", false}}, deadline);
  if (const auto progress = status.find("progress"); progress == status.end() || !progress->is_object()) return {};
  return EngineProgressFromStatus(status);
}

// An engine that cannot be asked is asked again: what has become of it, its reload's outcome says.
void Watch(const std::stop_token& stop, const std::string& endpoint, const Keys& keys, std::size_t engine,
           BoundedQueue<EngineProgress>& came) {
  NameThisThread("lc-progress");
  for (; !stop.stop_requested(); Pause(stop, ProgressWatch::kPeriod)) {
    try {
      RpcClient client("engine", endpoint, keys);
      for (; !stop.stop_requested(); Pause(stop, ProgressWatch::kPeriod)) {
        std::optional<EngineProgress> progress = Ask(client, Deadline::After(kAnswer).OrStop(stop));
        if (!progress) continue;
        progress->endpoint = endpoint;
        progress->engine = engine;
        came.Push(*std::move(progress), Deadline::After(kNow));
      }
    } catch (const std::exception& error) {
      log::debug("{}", error.what());
    }
  }
}

}  // namespace

ProgressWatch::ProgressWatch(const std::vector<std::string>& endpoints, std::function<void(const EngineProgress&)> tell,
                             const Keys& keys)
    : tell_(std::move(tell)) {
  if (!tell_) return;
  try {
    for (std::size_t i = 0; i < endpoints.size(); ++i) {
      watchers_.emplace_back([this, endpoint = endpoints[i], keys, i](const std::stop_token& stop) {
        Watch(stop, endpoint, keys, i, came_);
      });
    }
  } catch (const std::system_error& error) {  // the reload goes on without
    log::warn("the progress of {} engines is not watched: {}", endpoints.size() - watchers_.size(), error.what());
  }
}

ProgressWatch::~ProgressWatch() {
  for (std::jthread& watcher : watchers_) watcher.request_stop();  // all of them, before any is waited for
}

std::vector<EngineOutcome> ProgressWatch::Await(std::vector<std::future<EngineOutcome>>& under_way) {
  std::vector<std::optional<EngineOutcome>> ended(under_way.size());
  while (const auto next = FirstNotEnded(ended)) {
    const bool waits = tell_ && under_way[*next].wait_for(kTurn) == std::future_status::timeout;
    TellOfWhatCame(ended);
    if (waits) {
      TakeEnded(under_way, ended);
    } else {
      ended[*next] = under_way[*next].get();
      TellEnd(*next, *ended[*next]);
    }
  }
  std::vector<EngineOutcome> outcomes;
  for (std::optional<EngineOutcome>& outcome : ended) outcomes.push_back(*std::move(outcome));
  return outcomes;
}

// An engine that is done is told so, though one that comes before it is not.
void ProgressWatch::TakeEnded(std::vector<std::future<EngineOutcome>>& under_way, Ended& ended) {
  for (std::size_t i = 0; i < under_way.size(); ++i) {
    if (ended[i] || under_way[i].wait_for(kNow) != std::future_status::ready) continue;
    ended[i] = under_way[i].get();
    TellEnd(i, *ended[i]);
  }
}

// What an engine had said before its end is told no more.
void ProgressWatch::TellOfWhatCame(const Ended& ended) {
  while (const std::optional<EngineProgress> progress = came_.Pop(Deadline(Deadline::Clock::now()))) {
    if (!ended[progress->engine]) Tell(*progress);
  }
}

void ProgressWatch::TellEnd(std::size_t engine, const EngineOutcome& outcome) {
  if (engine < watchers_.size()) watchers_[engine].request_stop();
  if (!tell_ || !outcome.ok) return;
  const Json report = Json::parse(outcome.report, nullptr, false);
  if (!report.is_object()) return;
  const auto number = [&report](const char* field) { return report.value(field, std::uint64_t{0}); };
  Tell({.endpoint = outcome.endpoint,
        .engine = engine,
        .state = "serving",
        .all = {.version = outcome.version.value_or(Version()),
                .stage = "verify",
                .bytes = number("bytes"),
                .bytes_total = number("bytes_total"),
                .layers = number("layers"),
                .layers_total = number("layers")}});
}

void ProgressWatch::Tell(const EngineProgress& progress) {
  if (!tell_) return;
  try {
    return tell_(progress);
  } catch (const std::exception& error) {
    log::warn("on_progress threw, and is told no more of this reload: {}", error.what());
  } catch (...) {
    log::warn("on_progress threw, and is told no more of this reload");
  }
  tell_ = nullptr;
}

}  // namespace layercast
