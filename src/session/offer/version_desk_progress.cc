// How far receivers have come, by their own words: what the desk makes of it, and tells of it.
#include <algorithm>
#include <utility>

#include "layercast/error.h"
#include "src/base/utf8.h"
#include "src/session/offer/version_desk.h"

namespace layercast {
namespace {

void DescribePace(const Pace& pace, wire::ReaderStatus& reader) {
  reader.bytes = pace.bytes();
  reader.bytes_per_second = static_cast<std::uint64_t>(pace.rate());
}

std::uint64_t BytesOf(const Offer& offer) {
  std::uint64_t bytes = 0;
  for (const OfferedTensor& tensor : offer.tensors) bytes += tensor.bytes;
  return bytes;
}

}  // namespace

std::vector<wire::ReaderStatus> VersionDesk::ReadersOf(const OfferedVersion& version) const {
  std::vector<wire::ReaderStatus> readers;
  for (const auto& [key, session] : sessions_) {
    if (session.version().get() != &version) continue;
    wire::ReaderStatus& reader = readers.emplace_back();
    reader.engine = session.hello.engine;
    reader.rank = session.hello.rank;
    if (session.pace) DescribePace(*session.pace, reader);
    const auto standing = session.tree == nullptr ? std::nullopt : session.tree->StandingOf(key);
    if (!standing) continue;
    reader.takes_from = standing->takes_from;
    reader.relays_at = standing->relays_at;
    DescribePace(standing->pace, reader);
  }
  return readers;
}

void VersionDesk::OnRelayLost(const SessionKey& key, const Session& session, const wire::RelayLost& lost) {
  if (session.tree == nullptr) throw Error(ErrorCode::kInvalidArgument, "'relay_lost' of one that takes from no relay");
  complaints_.Warn("receiver " + NameOf(key) + " has lost relay " + Quote(lost.relay) + ": " + Quote(lost.why));
  relays_.Lost(key, *session.tree, lost);
}

void VersionDesk::OnProgress(const SessionKey& key, Session& session, const wire::Progress& progress) {
  const bool of_relay = session.version()->relayed() != nullptr;
  if (session.schedule == nullptr && !of_relay) {
    throw Error(ErrorCode::kInvalidArgument, "'progress' of one that has asked for nothing");
  }
  NoteTaken(session, progress);
  if (of_relay) return;
  if (session.tree == nullptr) {
    if (!session.pace) session.pace.emplace(session.subscribed);
    session.pace->Note(progress, Deadline::Clock::now());
    return;
  }
  if (const std::optional<std::string> moved = relays_.Note(key, *session.tree, progress)) {
    complaints_.Warn("receiver " + NameOf(key) + ": " + *moved + "; it goes elsewhere");
  }
}

// What it says that it took counts at most as often as there is something to take.
void VersionDesk::NoteTaken(Session& session, const wire::Progress& progress) const {
  const std::uint64_t all = session.schedule != nullptr ? session.schedule->total_bytes()
                                                        : BytesOf(session.version()->offer());  // of a relay
  const std::uint64_t taken = std::min(progress.bytes, all);
  if (taken < session.taken) return;  // it makes no sense
  const std::uint64_t more = taken - std::exchange(session.taken, taken);
  const auto since = std::exchange(session.taken_by, Deadline::Clock::now());
  if (session.record != nullptr) session.record->Add("taken", since, session.taken_by, std::to_string(more) + " bytes");
  const double seconds = static_cast<double>(std::max<std::uint64_t>(progress.elapsed_us, 1)) * 1e-6;
  const auto rate = static_cast<std::uint64_t>(static_cast<double>(taken) / seconds);
  if (parts_.takers != nullptr) parts_.takers->Came(session.hello, more, rate);
}

void VersionDesk::End(const SessionKey& key) {
  Session& session = sessions_.at(key);
  LogEnd(session);
  if (session.tree != nullptr) std::exchange(session.tree, nullptr)->Finish(key);
  const bool whole = session.schedule != nullptr && session.taken == session.schedule->total_bytes();
  if (whole && parts_.takers != nullptr) parts_.takers->Took(session.hello, session.version()->manifest().version());
  Drop(key);
}

}  // namespace layercast
