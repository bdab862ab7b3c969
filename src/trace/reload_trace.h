// The timeline of one reload as a controller puts it together: its own calls, and what engines answer of theirs. Used
// by the controller.
#pragma once

#include <exception>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "src/trace/chrome_trace.h"
#include "src/trace/process_trace.h"
#include "src/trace/trace_context.h"
#include "src/trace/trace_recorder.h"

namespace layercast {

// Resource; Called and Came are thread-safe, the rest is for the thread that reloads.
class ReloadTrace {
 public:
  using Json = nlohmann::ordered_json;
  using MeasureClock = std::function<std::optional<ClockOffset>()>;
  // What is wanted, as of ReloadRequest. Value.
  struct Wanted {
    std::string file{};
    std::function<void(std::string otlp)> on_trace{};
    std::string traceparent{};
  };

  // Nothing is recorded if neither a file nor the spans are wanted. Throws what is wrong with the traceparent, and what
  // TraceFile throws.
  explicit ReloadTrace(Wanted wanted);

  // Says in the params of `reload_weights` what is wanted, and which trace it is of.
  void AddTo(Json& params) const;
  // Does the reload, and hands the timeline over, whatever became of it: `error_of` its result, in words, or empty.
  template <class Reload, class ErrorOf>
  auto Of(const Reload& reload, const ErrorOf& error_of) {
    const TraceTime begin = TraceTime::clock::now();
    try {
      auto result = reload();
      HandOver(begin, error_of(result));
      return result;
    } catch (const std::exception& error) {
      HandOver(begin, error.what());
      throw;
    }
  }

  bool wanted() const { return recorder_.on(); }
  void Called(const std::string& endpoint, const std::string& method, TraceTime begin);
  // Takes what the engine says of itself, its ranks and its publishers, if it says that. Its clock is measured if it is
  // not this process's.
  void Came(const std::string& endpoint, const Json& answer, const MeasureClock& measure);

 private:
  void HandOver(TraceTime begin, const std::string& error) noexcept;
  std::vector<ProcessTrace> Everybody(TraceTime begin, const std::string& error);

  const Wanted wanted_;
  TraceContext context_;  // and the span that this reload is a part of
  const std::uint64_t span_ = NewSpan();
  std::optional<TraceFile> file_;  // nullopt: none is written
  std::int64_t to_1970_ = 0;
  std::mutex mutex_;
  TraceRecorder recorder_;            // guarded by mutex_, but for whether it is on
  std::vector<ProcessTrace> others_;  // guarded by mutex_
};

}  // namespace layercast
