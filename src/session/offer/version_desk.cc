#include "src/session/offer/version_desk.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "layercast/error.h"
#include "src/base/as_error.h"
#include "src/base/run_at.h"
#include "src/base/utf8.h"
#include "src/session/link/my_host.h"
#include "src/session/link/trainer_cost.h"
#include "src/session/offer/ask_limits.h"

namespace layercast {
namespace {

std::string Range(std::uint16_t oldest, std::uint16_t newest) {
  return std::to_string(oldest) + " to " + std::to_string(newest);
}

void CheckProtocol(const wire::Hello& hello) {
  if (hello.newest_protocol >= wire::kOldestProtocol && hello.oldest_protocol <= wire::kNewestProtocol) return;
  throw Error(ErrorCode::kUnsupported, "no common protocol: the publisher speaks " +
                                           Range(wire::kOldestProtocol, wire::kNewestProtocol) + ", the receiver " +
                                           Range(hello.oldest_protocol, hello.newest_protocol));
}

std::uint32_t LastChunk(const Schedule& schedule) {
  const std::size_t chunks = schedule.chunks().size();
  return chunks == 0 ? 0 : static_cast<std::uint32_t>(chunks - 1);
}

// A list of one message. A braced list would copy the message, and a welcome is as large as its manifest.
std::vector<wire::Message> Only(wire::Message message) {
  std::vector<wire::Message> list;
  list.push_back(std::move(message));
  return list;
}

}  // namespace

VersionDesk::VersionDesk(DeskOptions options, const Parts& parts)
    : options_(std::move(options)),
      parts_(parts),
      window_{.bytes = options_.stream_window_bytes},
      relays_(parts.context.outbox),
      digests_(parts.context),
      deltas_({.pool = parts.context.pool,
               .outbox = parts.context.outbox,
               .arena = parts.context.arena,
               .ends = parts.context.ends,
               .take_offer_ids = parts.context.take_offer_ids}),
      orders_(parts.keeper, parts.context.outbox),
      traces_(options_.name, parts.send_trace) {}

void VersionDesk::Add(std::shared_ptr<OfferedVersion> version) {
  const std::lock_guard lock(mutex_);
  versions_.push_back(std::move(version));
}

void VersionDesk::Withdraw(const std::shared_ptr<OfferedVersion>& version) {
  const std::lock_guard lock(mutex_);
  std::erase(versions_, version);
  version->Retire();
}

std::vector<wire::Message> VersionDesk::Take(const SessionKey& key, wire::Message message) {
  try {
    return Dispatch(key, std::move(message));
  } catch (const std::exception& error) {
    return {Refuse(key, AsError(error))};
  }
}

wire::Refused VersionDesk::Refuse(const SessionKey& key, const Error& error) {
  complaints_.Warn("receiver " + NameOf(key) + ": " + error.what());
  if (parts_.takers != nullptr) parts_.takers->Refused(error.code());
  Drop(key);
  return {error.code(), error.what()};
}

bool VersionDesk::HasSession(const std::string& routing_id) const {
  const auto first = sessions_.lower_bound({routing_id, 0});
  return first != sessions_.end() && first->first.routing_id == routing_id;
}

void VersionDesk::DropDeaf(const SessionKey& key) {
  if (!sessions_.contains(key)) return;
  complaints_.Warn("receiver " + NameOf(key) + " takes no messages, and loses its session");
  Drop(key);
}

void VersionDesk::NoteUser(const SessionKey& key, std::string user) {
  if (const auto found = sessions_.find(key); found != sessions_.end()) found->second.user = std::move(user);
}

void VersionDesk::DropUnknownUsers(const std::function<bool(const std::string& user)>& knows) {
  std::vector<SessionKey> gone;
  for (const auto& [key, session] : sessions_) {
    if (!session.user.empty() && !knows(session.user)) gone.push_back(key);
  }
  for (const SessionKey& key : gone) {
    complaints_.Warn("receiver " + NameOf(key) + " loses its session: its key is no longer admitted");
    Drop(key);
  }
}

void VersionDesk::DropBarred(const std::string& routing_id) {
  complaints_.Warn("a receiver loses its connection: too many of its messages were refused");
  const auto first = [&] { return sessions_.lower_bound({routing_id, 0}); };
  for (auto next = first(); next != sessions_.end() && next->first.routing_id == routing_id; next = first()) {
    Drop(SessionKey(next->first));
  }
}

std::vector<wire::Message> VersionDesk::Dispatch(const SessionKey& key, wire::Message message) {
  if (auto* hello = std::get_if<wire::Hello>(&message)) return Only(OnHello(key, std::move(*hello)));
  if (std::holds_alternative<wire::StatusRequest>(message)) return {Status()};
  if (const auto* ask = std::get_if<wire::SessionTrace>(&message)) return Only(traces_.Answer(*ask));
  if (std::optional<std::vector<wire::Message>> answer = orders_.Take(key, message)) return *std::move(answer);
  const auto found = sessions_.find(key);
  if (found == sessions_.end()) {
    if (std::holds_alternative<wire::Bye>(message)) return {};
    throw Error(ErrorCode::kFailedPrecondition, "no such session: it ended, or its lease ran out");
  }
  Session& session = found->second;
  session.last_heard = Deadline::Clock::now();
  if (std::holds_alternative<wire::Ping>(message)) return {wire::Pong{}};
  if (auto* subscribe = std::get_if<wire::Subscribe>(&message)) return OnSubscribe(key, session, std::move(*subscribe));
  if (std::holds_alternative<wire::Bye>(message)) {
    End(key);
    return {};
  }
  if (const auto* ask = std::get_if<wire::AskSigned>(&message)) {
    OnAskSigned(session, *ask);
    return {};
  }
  if (const auto* ask = std::get_if<wire::AskDelta>(&message)) {
    OnAskDelta(key, session, *ask);
    return {};
  }
  if (const auto* lost = std::get_if<wire::RelayLost>(&message)) {
    OnRelayLost(key, session, *lost);
    return {};
  }
  if (const auto* progress = std::get_if<wire::Progress>(&message)) {
    OnProgress(key, session, *progress);
    return {};
  }
  if (std::holds_alternative<wire::CostRequest>(message)) {
    session.complete = true;
    const double spent = std::max(0.0, CoreSeconds() - session.served_since);  // threads that ended no longer count
    return {wire::ServingCost{static_cast<std::uint64_t>(spent * 1e6)}};
  }
  if (const auto* done = std::get_if<wire::TensorDone>(&message)) {
    if (session.walk != nullptr) session.walk->Done(key, done->sequence);
    return {};
  }
  throw Error(ErrorCode::kInvalidArgument, "a receiver never sends '" + std::string(wire::MessageName(message)) + "'");
}

wire::StatusAnswer VersionDesk::Status() {
  wire::StatusAnswer status;
  status.process = static_cast<std::uint64_t>(::getpid());
  const std::lock_guard lock(mutex_);
  for (const std::shared_ptr<OfferedVersion>& version : versions_) {
    const Manifest& manifest = version->manifest();
    status.versions.push_back({.lineage = manifest.version().lineage,
                               .step = manifest.version().step,
                               .digest = manifest.version().digest,
                               .stream = version->mode() == PublishMode::kStream,
                               .tensors = static_cast<std::uint32_t>(manifest.size()),
                               .bytes = manifest.total_bytes(),
                               .readers = static_cast<std::uint32_t>(version->readers()),
                               .part_rank = static_cast<std::uint32_t>(manifest.part().rank),
                               .part_ranks = static_cast<std::uint32_t>(manifest.part().ranks),
                               .run = version->provenance().run,
                               .receivers = ReadersOf(*version)});
  }
  return status;
}

wire::Welcome VersionDesk::OnHello(const SessionKey& key, wire::Hello hello) {
  if (sessions_.contains(key)) throw Error(ErrorCode::kInvalidArgument, "'hello' twice in one session");
  CheckMaySpeak(key, hello);
  parts_.context.failpoints.Hit("answer.hello");
  std::shared_ptr<const VersionHold> hold = HoldVersion(hello);
  const std::shared_ptr<OfferedVersion>& version = hold->version();
  const std::span<const std::byte> config = std::as_bytes(std::span(version->provenance().config));
  wire::Welcome welcome{.protocol = std::min(hello.newest_protocol, wire::kNewestProtocol),
                        .publisher = options_.name,
                        .host = MyHost(),
                        .run = version->provenance().run,
                        .stream = version->mode() == PublishMode::kStream,
                        .channels = parts_.channels(*version),
                        .manifest = version->encoded_manifest(),
                        .cost = ToWire(version->cost()),
                        .config = {config.begin(), config.end()}};
  Session& session = sessions_[key];
  session.hello = std::move(hello);
  session.channels = welcome.channels;
  session.hold = std::move(hold);
  session.served_since = CoreSeconds();
  session.greeted = session.last_heard = Deadline::Clock::now();
  if (parts_.takers != nullptr) parts_.takers->Began(session.hello);
  return welcome;
}

void VersionDesk::CheckMaySpeak(const SessionKey& key, const wire::Hello& hello) const {
  CheckProtocol(hello);
  CheckNames(hello);
  if (sessions_.size() >= options_.max_sessions) {
    throw Error(ErrorCode::kResourceExhausted,
                "the publisher has " + std::to_string(sessions_.size()) + " sessions, the most it takes");
  }
  const auto own = std::ranges::count_if(sessions_.lower_bound({key.routing_id, 0}), sessions_.end(),
                                         [&](const auto& one) { return one.first.routing_id == key.routing_id; });
  if (static_cast<std::size_t>(own) >= options_.max_sessions_each) {
    throw Error(ErrorCode::kResourceExhausted,
                "this connection has " + std::to_string(own) + " sessions, the most that the publisher takes of one");
  }
}

std::shared_ptr<const VersionHold> VersionDesk::HoldVersion(const wire::Hello& hello) {
  const std::lock_guard lock(mutex_);
  for (auto version = versions_.rbegin(); version != versions_.rend(); ++version) {
    if (Answers(**version, hello)) return std::make_shared<const VersionHold>(*version);
  }
  if (versions_.empty() && hello.lineage.empty() && !hello.step_known) {
    throw Error(ErrorCode::kNotFound, "no version is offered here");
  }
  const std::string lineage = hello.lineage.empty() ? "any lineage" : hello.lineage;
  const bool step = hello.step_known && (!hello.digest || !hello.lineage.empty());
  throw Error(ErrorCode::kNotFound, "version " + lineage + (step ? "@" + std::to_string(hello.step) : "") +
                                        (hello.digest ? " of digest " + hello.digest.ToHex() : "") +
                                        " is not offered here; offered: " + Offered());
}

// A version that a later run has shadowed goes by its digest alone.
bool VersionDesk::Answers(const OfferedVersion& version, const wire::Hello& hello) {
  const Version& name = version.manifest().version();
  if (hello.digest ? hello.digest != name.digest : version.shadowed()) return false;
  if (hello.lineage.empty()) return hello.digest || !hello.step_known || hello.step == name.step;
  return hello.lineage == name.lineage && (!hello.step_known || hello.step == name.step);
}

std::string VersionDesk::Offered() const {
  if (versions_.empty()) return "none";
  std::string offered;
  for (auto version = versions_.rbegin(); version != versions_.rend(); ++version) {
    offered += (offered.empty() ? "" : ", ") + RunAt((*version)->manifest().version());
  }
  return offered;
}

std::vector<wire::Message> VersionDesk::OnSubscribe(const SessionKey& key, Session& session,
                                                    wire::Subscribe subscribe) {
  if (session.schedule != nullptr) throw Error(ErrorCode::kInvalidArgument, "'subscribe' twice in one session");
  CheckName("relay", subscribe.relay_endpoint);
  if (session.version()->relayed() != nullptr) return FollowRelayed(key, session, subscribe);
  const std::shared_ptr<const Schedule> schedule = FindSchedule(subscribe);
  if (schedule == nullptr) return {wire::NeedSchedule{}};
  const bool stream = session.version()->mode() == PublishMode::kStream;
  const Manifest& manifest = session.version()->manifest();
  CheckSchedule(*schedule, manifest, stream);
  CheckReadings(*schedule, manifest);
  for (AmaxRequest& request : subscribe.amax_requests) {  // what no chunk needs comes with the last
    request.before_chunk = std::min(request.before_chunk, LastChunk(*schedule));
  }
  CheckAmaxRequests(subscribe.amax_requests, manifest);
  for (const AmaxRequest& request : subscribe.amax_requests) session.amax_requests.emplace(request.tensor, request);
  session.schedule = schedule;
  session.subscribed = session.taken_by = Deadline::Clock::now();
  session.record = traces_.Begin(session.hello, session.greeted);
  if (!stream) {
    session.tree = relays_.Join(key, session.version(), session.hello.host.boot_id, subscribe);
    digests_.Put({.key = key,
                  .hold = session.hold,
                  .schedule = schedule,
                  .schedule_digest = subscribe.schedule_digest,
                  .amax_requests = std::move(subscribe.amax_requests),
                  .signed_text = SignedTextOf(session),
                  .record = session.record});
    return {};
  }
  // The walk sends from its own thread, so the answer has to be on its way before the walk starts.
  parts_.context.outbox.Put(key, wire::Subscribed{});
  StartWalkIfComplete(session);
  return {};
}

std::vector<wire::Message> VersionDesk::FollowRelayed(const SessionKey& key, Session& session,
                                                      const wire::Subscribe& subscribe) {
  RelayedChunks& relayed = *session.version()->relayed();
  if (subscribe.schedule_digest != relayed.schedule_digest()) {
    throw Error(ErrorCode::kNotFound, "the relay has the chunks of schedule " + relayed.schedule_digest().ToHex() +
                                          ", not those of " + subscribe.schedule_digest.ToHex());
  }
  relayed.Leave(key);  // a receiver that subscribes twice is told once
  relayed.Follow(key, parts_.context.outbox);
  return {wire::Subscribed{session.version()->offer().id, {}, {}}};
}

std::shared_ptr<const Schedule> VersionDesk::FindSchedule(const wire::Subscribe& subscribe) {
  if (std::shared_ptr<const Schedule> known = schedules_.Find(subscribe.schedule_digest)) return known;
  if (subscribe.schedule.empty()) return nullptr;
  Schedule schedule = Schedule::Decode(subscribe.schedule);
  if (const Digest digest = schedule.digest(); digest != subscribe.schedule_digest) {
    throw Error(ErrorCode::kCorrupt,
                "schedule: digest expected " + subscribe.schedule_digest.ToHex() + ", got " + digest.ToHex());
  }
  return schedules_.Put(subscribe.schedule_digest, std::move(schedule));
}

std::vector<std::pair<SessionKey, wire::Message>> VersionDesk::LastWords() const {
  std::vector<std::pair<SessionKey, wire::Message>> words;
  for (const auto& [key, session] : sessions_) {
    words.emplace_back(key, wire::Refused{ErrorCode::kUnavailable, "the publisher has ended"});
  }
  for (const SessionKey& key : orders_.Waiting()) {
    words.emplace_back(key, wire::Refused{ErrorCode::kUnavailable, "the publisher has ended"});
  }
  return words;
}

void VersionDesk::Sweep() {
  std::vector<SessionKey> silent;
  for (const auto& [key, session] : sessions_) {
    if (Deadline::Clock::now() - session.last_heard > options_.lease) silent.push_back(key);
  }
  relays_.Sweep();
  traces_.Sweep();
  for (const SessionKey& key : silent) {
    complaints_.Warn("receiver " + NameOf(key) + " was silent for " + std::to_string(options_.lease.count()) +
                     " ms: its lease is over");
    Drop(key);
  }
  RefuseReadersOfEvicted();
  RefuseWhoWaitsInVain();
  DropEndedWalks();
  StartWalksThatWait();
}

void VersionDesk::RefuseReadersOfEvicted() {
  const auto of_evicted = [this](const auto& one) {
    const OfferedVersion& version = *one.second.version();
    return version.expired() || version.RetiredFor() > options_.eviction_time;
  };
  for (auto one = std::ranges::find_if(sessions_, of_evicted); one != sessions_.end();
       one = std::ranges::find_if(sessions_, of_evicted)) {
    const SessionKey key = one->first;
    const Error why(ErrorCode::kNotFound, WhyEvicted(*one->second.version()));
    parts_.context.outbox.Put(key, Refuse(key, why));
  }
}

std::string VersionDesk::WhyEvicted(const OfferedVersion& version) {
  const std::lock_guard lock(mutex_);
  return "version " + version.manifest().version().ToString() + " is evicted: " +
         (version.expired() ? "its memory is needed for newer ones"
                            : "it was withdrawn more than " + std::to_string(options_.eviction_time.count()) +
                                  " ms ago, the most that its readers may take then") +
         "; offered: " + Offered();
}

void VersionDesk::Drop(const SessionKey& key) {
  const auto dropped = sessions_.extract(key);
  if (dropped.empty()) return;
  const Session& session = dropped.mapped();
  if (parts_.takers != nullptr) parts_.takers->Ended();
  if (parts_.take_back) parts_.take_back(session.channels);
  if (session.record != nullptr) session.record->End();
  if (session.walk != nullptr) session.walk->Leave(key);
  if (session.version()->relayed() != nullptr) session.version()->relayed()->Leave(key);
  if (session.tree != nullptr) relays_.Leave(key, *session.tree);
  if (RanksHere(session).contains(session.hello.rank)) return;  // it was an earlier one, whose end came late
  RefuseWhoWaitsFor(session, "rank " + std::to_string(session.hello.rank) + " of '" + session.hello.engine +
                                 "' has left before the stream began");
}

std::string VersionDesk::NameOf(const SessionKey& key) const {
  const auto found = sessions_.find(key);
  if (found == sessions_.end()) return "(no session)";
  return Quote(found->second.hello.engine) + " rank " + std::to_string(found->second.hello.rank);
}

}  // namespace layercast
