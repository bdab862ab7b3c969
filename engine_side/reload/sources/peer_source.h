// What sources have in common whose bytes come by a session with peers: a trainer's publishers, or a rank of another
// engine that lends its own. Used by publisher_source.cc, lender_source.cc, and loads of adapters.
#pragma once

#include <memory>
#include <utility>

#include "engine_side/reload/sources/peer_session.h"
#include "engine_side/reload/sources/version_source.h"
#include "layercast/reload_source.h"
#include "src/session/fetch/fetch.h"

namespace layercast {

// Resource; one thread only. The session is the context's, and stays open until whoever owns it closes it.
class PeerSource : public VersionSource {
 public:
  void Receive(const SourceContext& context, const Wanted& wanted) final {
    context.peers.Fetch(wanted.schedule, wanted.prepared.SessionRequests(), wanted.sink);
  }
  void LetGo(const SourceContext& context) final { context.peers.LetGo(); }
  void Reach(const SourceContext& context) final { context.peers.Reach(); }

 protected:
  static MergedVersion Connect(const SourceContext& context, PeerRequest request) {
    context.progress.Enter("connect", context.report.version);
    return context.peers.Open(Of(context, std::move(request)));
  }
  // As Connect does, of a session that is open.
  static MergedVersion Adopt(const SourceContext& context, PeerRequest request, std::unique_ptr<FetchSession> session) {
    return context.peers.Adopt(Of(context, std::move(request)), std::move(session));
  }

 private:
  static PeerRequest Of(const SourceContext& context, PeerRequest request) {
    request.attempt = context.attempt;
    request.stop = context.stop;
    // A partial version is no base: the next one is taken by another schedule.
    request.keeps_source = context.options.keep_source && !context.request.partial && !request.lender;
    request.base = context.base;
    return request;
  }
};

// What comes by `session`, which is open and has fetched nothing, since somebody looked first at what is offered: a
// load of adapters, where that decides which receiver takes it. `request` says what it was opened for; its attempt and
// its stop are the reload's. What the session was opened with outlives the reload.
ReloadSource FromOpenPublishers(PeerRequest request, std::unique_ptr<FetchSession> session);

}  // namespace layercast
