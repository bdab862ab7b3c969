// What a publisher remembers of its latest sessions, for timelines of syncs: when each rank had its session, when its
// chunks were digested, what it said that it has taken. A few spans each, which are always recorded: who wants a
// timeline asks when the sync is over. Used by the desk of versions.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/trace/process_trace.h"
#include "src/trace/trace_context.h"
#include "src/trace/trace_lane.h"
#include "src/wire/frames.h"

namespace layercast {

// Of one rank's session. Resource; thread-safe.
class SessionRecord {
 public:
  SessionRecord(const wire::Hello& hello, TraceTime begun);
  // Adds a span to the lane of that name.
  void Add(std::string_view lane, TraceTime begin, TraceTime end, const std::string& of);
  // The session is over.
  void End();

 private:
  friend class SessionTraces;
  // Locks; a session that goes on ends now.
  void CopyTo(std::vector<TraceLane>& lanes, std::vector<std::pair<std::string, std::string>>& facts) const;

  const std::string session_;
  const std::string rank_;
  const TraceTime begin_;
  mutable std::mutex mutex_;
  std::vector<TraceLane> lanes_;    // guarded by mutex_, like all members below
  std::optional<TraceTime> ended_;  // nullopt: it goes on
};

// Resource; thread-safe.
class SessionTraces {
 public:
  // Takes what is to be sent to a collector. Called on the desk's thread.
  using Send = std::function<void(ProcessTrace trace, const TraceContext& of)>;

  // `name` is the publisher's. `send` may be empty: nothing is sent.
  SessionTraces(std::string name, Send send) : name_(std::move(name)), send_(std::move(send)) {}
  ~SessionTraces();  // sends what was not sent yet

  // A session that had begun then takes something.
  std::shared_ptr<SessionRecord> Begin(const wire::Hello& hello, TraceTime begun);
  wire::SessionTrace Answer(const wire::SessionTrace& ask);
  // Sends traces of syncs that are over, and that nobody has asked for. Called now and then.
  void Sweep();

 private:
  static constexpr std::size_t kMostSyncs = 64;
  static constexpr std::chrono::seconds kAskedWithin{5};
  // The sessions of all ranks of an engine for one reload.
  struct Sync {
    std::string session;
    std::vector<std::shared_ptr<SessionRecord>> ranks;  // the other owners are the session and what works for it
    bool sent = false;                                  // or not to be
  };
  ProcessTrace TraceOf(const Sync& sync) const;
  void SendOf(Sync& sync, const TraceContext& of) const;
  static std::optional<TraceTime> EndOf(const Sync& sync);

  const std::string name_;
  const Send send_;
  std::mutex mutex_;
  std::deque<Sync> syncs_;  // oldest first; guarded by mutex_
};

}  // namespace layercast
