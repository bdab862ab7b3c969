// The publisher's half of the protocol, without a socket: takes receivers' messages, keeps their sessions, and says
// what is to be sent. FORMAT.md has the conversation. Used by the offer service, which owns the socket.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/session/complaints.h"
#include "src/session/digest_worker.h"
#include "src/session/offered_version.h"
#include "src/session/outbox.h"
#include "src/session/recent_schedules.h"
#include "src/session/relay_planner.h"
#include "src/session/serve_context.h"
#include "src/session/stream_walk.h"
#include "src/wire/frames.h"

namespace layercast {

struct DeskOptions {
  std::string name;                         // of the publisher
  std::chrono::milliseconds lease{30'000};  // silence that ends a session
  // Of a stream: how long a rank that has asked for it waits for those of its engine that have no session.
  std::chrono::milliseconds ranks_within{30'000};
  // Of a version that is withdrawn: how long those who read it may take to end.
  std::chrono::milliseconds eviction_time{600'000};
  std::size_t max_sessions = 1024;
  std::size_t max_sessions_each = 4;  // of one connection; a receiver has one
  std::uint64_t stream_window_bytes = 256U << 20;
  std::size_t max_walks = 32;  // of streams, at once; more of them wait for their turn
};

// Resource. Versions may be added and withdrawn from any thread; all else is for the socket's thread.
class OfferDesk {
 public:
  struct Parts {
    ServeContext context;
    // The channels that carry a version, by name and address.
    std::function<std::vector<wire::ChannelAddress>(const OfferedVersion&)> channels;
    std::function<double()> core_seconds;  // that the service's threads have computed, but for this desk's
  };
  OfferDesk(DeskOptions options, const Parts& parts);

  std::chrono::milliseconds lease() const { return options_.lease; }
  void Add(std::shared_ptr<OfferedVersion> version);
  void Withdraw(const std::shared_ptr<OfferedVersion>& version);

  // The answer, where there is one at once; others go to the outbox when they are ready. Whatever is wrong with a
  // message is its sender's affair: a refusal, and the end of its session.
  std::vector<wire::Message> Take(const SessionKey& key, wire::Message message);
  wire::Refused Refuse(const SessionKey& key, const Error& error);
  // Of one that takes no messages: its session ends, if it has one.
  void DropDeaf(const SessionKey& key);
  // Of a connection that is ended, as too much that came by it was refused: so are its sessions.
  void DropBarred(const std::string& routing_id);
  // What those who have a session are told when there is to be no desk any more: nobody need wait for its silence.
  std::vector<std::pair<SessionKey, wire::Message>> LastWords() const;
  // Ends the sessions whose lease ran out, those of versions that are evicted, and those that wait for ranks which do
  // not come; drops walks that have ended, and begins those that waited for that.
  void Sweep();

 private:
  struct Session {
    wire::Hello hello;
    std::shared_ptr<const VersionLease> lease;           // the second owner, for moments, is digests_
    std::shared_ptr<const Schedule> schedule;            // the second owner is schedules_
    std::map<std::uint32_t, AmaxRequest> amax_requests;  // by tensor
    Deadline::Clock::time_point last_heard;
    Deadline::Clock::time_point subscribed;  // where it has a schedule
    double served_since = 0;                 // what serving had cost when the session began: core seconds
    StreamWalk* walk = nullptr;
    RelayTree* tree = nullptr;  // of those who take the same of a snapshot

    const std::shared_ptr<OfferedVersion>& version() const { return lease->version(); }
    bool awaits_walk() const;  // of a stream, which begins when all ranks of its engine are as far
    bool IsOfOneReload(const Session& other) const;
  };

  std::vector<wire::Message> Dispatch(const SessionKey& key, wire::Message message);
  wire::StatusAnswer Status();
  // What serving has cost so far, whomever.
  double CoreSeconds() const { return parts_.core_seconds() + digests_.core_seconds(); }
  std::vector<wire::ReaderStatus> ReadersOf(const OfferedVersion& version) const;
  wire::Welcome OnHello(const SessionKey& key, wire::Hello hello);
  std::vector<wire::Message> OnSubscribe(const SessionKey& key, Session& session, wire::Subscribe subscribe);
  void OnRelayLost(const SessionKey& key, const Session& session, const wire::RelayLost& lost);
  void OnProgress(const SessionKey& key, const Session& session, const wire::Progress& progress);
  std::vector<wire::Message> FollowRelayed(const SessionKey& key, Session& session, const wire::Subscribe& subscribe);
  // Of the newest version that is wanted: once it is found, no withdrawal releases it under its reader.
  std::shared_ptr<const VersionLease> TakeLease(const wire::Hello& hello);
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
  // It has what it wanted.
  void End(const SessionKey& key);
  void Drop(const SessionKey& key);
  std::string NameOf(const SessionKey& key) const;

  const DeskOptions options_;
  const Parts parts_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<OfferedVersion>> versions_;  // oldest first; guarded by mutex_; also the publisher's
  std::map<SessionKey, Session> sessions_;
  RecentSchedules schedules_{RecentSchedules::Limits()};
  StreamWindow window_;
  bool walks_wait_ = false;  // since too many were under way
  std::vector<std::unique_ptr<StreamWalk>> walks_;
  RelayPlanner relays_;
  DigestWorker digests_;
  Complaints complaints_;
};

}  // namespace layercast
