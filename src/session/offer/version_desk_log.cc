// The one line that a receiver's session leaves in the publisher's log. The engine's log has one with the same
// "session".
#include <chrono>
#include <vector>

#include "src/base/log_entry.h"
#include "src/base/run_at.h"
#include "src/session/link/session_name.h"
#include "src/session/offer/version_desk.h"

namespace layercast {

// One that asked for nothing, as a probe does, leaves no line. The rank's bytes are those of its schedule, whoever it
// took them from.
void VersionDesk::LogEnd(const Session& session) {
  if (session.schedule == nullptr) return;
  const Version& version = session.version()->manifest().version();
  const std::chrono::duration<double> took = Deadline::Clock::now() - session.subscribed;
  const log::Level level = session.complete ? log::Level::kInfo : log::Level::kWarn;
  log::Write(level, session.complete ? "served" : "a receiver left before it had everything",
             {{"session", SessionName(session.hello.engine, session.hello.attempt)},
              {"version", RunAt(version)},
              {"digest", version.digest.ToHex()},
              {"bytes", session.schedule->total_bytes()},
              {"seconds", took.count()},
              {"peer", session.hello.engine},
              {"rank", std::uint64_t{session.hello.rank}},
              {"ranks", std::uint64_t{session.hello.ranks}}});
}

}  // namespace layercast
