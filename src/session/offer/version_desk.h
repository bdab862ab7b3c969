// The publisher's half of the protocol, without a socket: takes receivers' messages, keeps their sessions, and says
// what to send. src/wire/FORMAT.md has the conversation. Used by the offer service, which owns the socket.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/session/deltas/delta_desk.h"
#include "src/session/link/offered_version.h"
#include "src/session/link/outbox.h"
#include "src/session/offer/complaints.h"
#include "src/session/offer/digest_worker.h"
#include "src/session/offer/order_desk.h"
#include "src/session/offer/serve_context.h"
#include "src/session/offer/stream_walk.h"
#include "src/session/relay_tree/pace.h"
#include "src/session/relay_tree/relay_desk.h"
#include "src/session/schedules/recent_schedules.h"
#include "src/session/takers/taker_tally.h"
#include "src/session/traces/session_traces.h"
#include "src/wire/frames.h"

namespace layercast {

struct DeskOptions {
  std::string name;                         // of the publisher
  std::chrono::milliseconds lease{30'000};  // a session ends when its receiver is silent for so long
  // How long a rank that has asked for a stream waits for the ranks of its engine that have no session yet.
  std::chrono::milliseconds ranks_within{30'000};
  // How long the readers of a version that was withdrawn may still take.
  std::chrono::milliseconds eviction_time{600'000};
  std::size_t max_sessions = 1024;
  std::size_t max_sessions_each = 4;  // of one connection; a receiver needs one
  std::uint64_t stream_window_bytes = 256U << 20;
  std::size_t max_walks = 32;  // of streams at once; further walks wait for their turn
};

// Resource. Versions may be added and withdrawn on any thread; all else is for the socket's thread.
class VersionDesk {
 public:
  struct Parts {
    ServeContext context;
    // The channels that carry a version, by name and address.
    std::function<std::vector<wire::ChannelAddress>(const OfferedVersion&)> channels;
    // Called with what that has returned, once the session that was told it has ended. May be empty.
    std::function<void(std::span<const wire::ChannelAddress>)> take_back{};
    std::function<double()> core_seconds;  // what the service's threads have computed, without this desk's
    VersionKeeper* keeper = nullptr;       // null: nobody takes orders
    TakerTally* takers = nullptr;          // null: nobody asks who has taken what
    SessionTraces::Send send_trace{};      // empty: no trace is sent to a collector
  };
  VersionDesk(DeskOptions options, const Parts& parts);

  std::chrono::milliseconds lease() const { return options_.lease; }
  void Add(std::shared_ptr<OfferedVersion> version);
  void Withdraw(const std::shared_ptr<OfferedVersion>& version);

  // Takes a message and returns the immediate answer, if there is one; later answers go to the outbox when they are
  // ready. If anything is wrong with a message, its sender gets a refusal and its session ends; nobody else is
  // affected.
  std::vector<wire::Message> Take(const SessionKey& key, wire::Message message);
  wire::Refused Refuse(const SessionKey& key, const Error& error);
  // Whether a receiver at that connection has a session.
  bool HasSession(const std::string& routing_id) const;
  // Ends the session, if there is one, of a receiver that takes no messages any more.
  void DropDeaf(const SessionKey& key);
  // Whose key the session was begun by; nothing if there is no such session.
  void NoteUser(const SessionKey& key, std::string user);
  // Ends the sessions of those users that are not known any more; those without a user stay.
  void DropUnknownUsers(const std::function<bool(const std::string& user)>& knows);
  // Ends the sessions of a connection that was barred because too many of its messages were refused.
  void DropBarred(const std::string& routing_id);
  // The messages that tell every receiver with a session that the desk is about to go, so that none has to wait until
  // it notices the silence.
  std::vector<std::pair<SessionKey, wire::Message>> LastWords() const;
  // Ends sessions whose lease ran out, whose version was evicted, or that wait for ranks which do not come. Drops walks
  // that have ended, and begins those that waited for their turn. Called now and then.
  void Sweep();

 private:
  struct Session {
    wire::Hello hello;
    std::string user{};                                  // whose key has begun it; empty: there are no keys
    std::vector<wire::ChannelAddress> channels;          // that it was told
    std::shared_ptr<const VersionHold> hold;             // the second owner, for moments at a time, is digests_
    std::shared_ptr<const Schedule> schedule;            // the second owner is schedules_
    std::map<std::uint32_t, AmaxRequest> amax_requests;  // by tensor
    std::optional<wire::AskSigned> asked_signed;         // empty: nothing is to be signed
    bool asked_delta = false;
    Deadline::Clock::time_point greeted;
    Deadline::Clock::time_point last_heard;
    Deadline::Clock::time_point subscribed;  // valid if it has a schedule
    bool complete = false;                   // it has said that it has everything
    double served_since = 0;                 // what serving had cost when the session began: core seconds
    StreamWalk* walk = nullptr;
    RelayTree* tree = nullptr;  // the tree of the receivers that take the same of a snapshot; it has their paces
    std::optional<Pace> pace;   // of a receiver that is in no tree, once it has said one
    std::uint64_t taken = 0;    // bytes, by its last word
    Deadline::Clock::time_point taken_by;   // when that came, or the first was asked for; valid if it has a schedule
    std::shared_ptr<SessionRecord> record;  // null until it has a schedule; another owner is digests_

    const std::shared_ptr<OfferedVersion>& version() const { return hold->version(); }
    bool awaits_walk() const;  // waits for a stream's walk, which begins when all ranks of its engine have asked for it
    bool IsOfOneReload(const Session& other) const;
  };

  std::vector<wire::Message> Dispatch(const SessionKey& key, wire::Message message);
  wire::StatusAnswer Status();
  // What serving all receivers has cost so far.
  double CoreSeconds() const { return parts_.core_seconds() + digests_.core_seconds() + deltas_.core_seconds(); }
  std::vector<wire::ReaderStatus> ReadersOf(const OfferedVersion& version) const;
  wire::Welcome OnHello(const SessionKey& key, wire::Hello hello);
  void OnAskSigned(Session& session, const wire::AskSigned& ask) const;
  void OnAskDelta(const SessionKey& key, Session& session, const wire::AskDelta& ask);
  // Empty: there may be one.
  static std::string WhyNoDelta(const OfferedVersion& version, const wire::AskDelta& ask, const VersionHold* base,
                                const Schedule* schedule);
  // What the session has signed, once it has a schedule; empty: nothing.
  static std::optional<SignedText> SignedTextOf(const Session& session);
  std::vector<wire::Message> OnSubscribe(const SessionKey& key, Session& session, wire::Subscribe subscribe);
  void OnRelayLost(const SessionKey& key, const Session& session, const wire::RelayLost& lost);
  void OnProgress(const SessionKey& key, Session& session, const wire::Progress& progress);
  void NoteTaken(Session& session, const wire::Progress& progress) const;
  std::vector<wire::Message> FollowRelayed(const SessionKey& key, Session& session, const wire::Subscribe& subscribe);
  // Finds the version that the hello asks for and holds it in one step, so that a withdrawal cannot release it in
  // between.
  std::shared_ptr<const VersionHold> HoldVersion(const wire::Hello& hello);
  // Null if that version is not offered any more.
  std::shared_ptr<const VersionHold> HoldBase(const wire::AskDelta& ask);
  static bool Answers(const OfferedVersion& version, const wire::Hello& hello);
  std::string Offered() const;  // "run@3, run@4"; under mutex_
  void CheckMaySpeak(const SessionKey& key, const wire::Hello& hello) const;
  std::shared_ptr<const Schedule> FindSchedule(const wire::Subscribe& subscribe);
  void StartWalkIfComplete(const Session& last);
  void RefuseWhoWaitsFor(const Session& gone, const std::string& why);
  void RefuseWhoWaitsInVain();
  void RefuseReadersOfEvicted();
  std::string WhyEvicted(const OfferedVersion& version);
  std::set<std::uint32_t> RanksHere(const Session& of) const;
  void DropEndedWalks();
  void StartWalksThatWait();
  // Ends the session of a receiver that has all that it wanted.
  void End(const SessionKey& key);
  void Drop(const SessionKey& key);
  static void LogEnd(const Session& session);
  std::string NameOf(const SessionKey& key) const;

  const DeskOptions options_;
  const Parts parts_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<OfferedVersion>> versions_;  // oldest first; guarded by mutex_; also the publisher's
  std::map<SessionKey, Session> sessions_;
  RecentSchedules schedules_{RecentSchedules::Limits()};
  StreamWindow window_;
  bool walks_wait_ = false;  // some walk could not begin because too many were under way
  std::vector<std::unique_ptr<StreamWalk>> walks_;
  RelayDesk relays_;
  DigestWorker digests_;
  DeltaDesk deltas_;
  OrderDesk orders_;
  Complaints complaints_;
  SessionTraces traces_;
};

}  // namespace layercast
