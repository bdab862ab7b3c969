// VersionDesk: what changed since a version that a receiver keeps, for those who ask.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "src/session/offer/ask_limits.h"
#include "src/session/offer/version_desk.h"

namespace layercast {
namespace {

bool IsOnHost(const OfferedVersion& version) { return version.offer().device.kind == Device::Kind::kHost; }

}  // namespace

void VersionDesk::OnAskDelta(const SessionKey& key, Session& session, const wire::AskDelta& ask) {
  if (session.schedule != nullptr || session.asked_delta) {
    throw Error(ErrorCode::kInvalidArgument, "'ask_delta' twice in one session, or behind 'subscribe'");
  }
  session.asked_delta = true;
  std::shared_ptr<const VersionHold> base = HoldBase(ask);
  std::shared_ptr<const Schedule> schedule = schedules_.Find(ask.schedule_digest);
  const std::string why = WhyNoDelta(*session.version(), ask, base.get(), schedule.get());
  if (!why.empty()) {  // no error of the receiver's, which takes all bytes then
    parts_.context.outbox.Put(key, wire::Delta{.offer_id = 0, .chunk_bytes = {}, .why = why});
    return;
  }
  CheckSchedule(*schedule, session.version()->manifest(), false);
  CheckReadings(*schedule, session.version()->manifest());
  deltas_.Put({.key = key,
               .hold = session.hold,
               .base = std::move(base),
               .schedule = std::move(schedule),
               .schedule_digest = ask.schedule_digest,
               .most_bytes = ask.most_bytes});
}

std::string VersionDesk::WhyNoDelta(const OfferedVersion& version, const wire::AskDelta& ask, const VersionHold* base,
                                    const Schedule* schedule) {
  if (version.relayed() != nullptr) return "a relay makes no deltas";
  if (version.mode() == PublishMode::kStream) return "a stream comes dense";
  if (base == nullptr) {
    return "the publisher does not keep " + Version{ask.lineage, ask.step, ask.digest}.ToString() + " any more";
  }
  if (!IsOnHost(version) || !IsOnHost(*base->version())) return "the publisher has the version on a device";
  if (schedule == nullptr) return "the publisher does not know the schedule any more";
  return "";
}

std::shared_ptr<const VersionHold> VersionDesk::HoldBase(const wire::AskDelta& ask) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(versions_, [&](const std::shared_ptr<OfferedVersion>& version) {
    return version->mode() == PublishMode::kSnapshot &&
           version->manifest().version() == Version{ask.lineage, ask.step, ask.digest};
  });
  return found == versions_.end() ? nullptr : std::make_shared<const VersionHold>(*found, VersionUse::kBase);
}

}  // namespace layercast
