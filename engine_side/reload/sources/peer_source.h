// What sources have in common whose bytes come by a session with peers: a trainer's publishers, or a rank of another
// engine that lends its own. Used by publisher_source.cc and lender_source.cc.
#pragma once

#include "engine_side/reload/sources/version_source.h"

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
    request.attempt = context.attempt;
    request.stop = context.stop;
    return context.peers.Open(std::move(request));
  }
};

}  // namespace layercast
