// What a trainer publishes: a snapshot or a stream, from one publisher or from one on each rank of the trainer.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine_side/reload/sources/peer_source.h"

namespace layercast {
namespace {

class PublisherSource final : public PeerSource {
 public:
  // `session`: with those publishers; null: it is still to be opened.
  explicit PublisherSource(PeerRequest request, std::unique_ptr<FetchSession> session = nullptr)
      : request_(std::move(request)), session_(std::move(session)) {}

  bool is_published() const override { return true; }

  Opened Open(const SourceContext& context) override {
    auto [manifest, parts] =
        session_ == nullptr ? Connect(context, request_) : Adopt(context, request_, std::move(session_));
    const PeerSession& peers = context.peers;
    context.report.version = peers.offered();
    return {.manifest = std::move(manifest),
            .parts = std::move(parts),
            .from = peers.Peers(),
            .configs = peers.configs(),
            .in_order = peers.is_snapshot(),
            .snapshot = peers.is_snapshot(),
            .version = peers.offered()};
  }

 private:
  const PeerRequest request_;
  std::unique_ptr<FetchSession> session_;
};

}  // namespace

ReloadSource FromPublisher(std::string endpoint, std::string lineage, std::optional<std::uint64_t> step,
                           Digest digest) {
  return ReloadSource(std::make_unique<PublisherSource>(
      PeerRequest{.endpoints = {std::move(endpoint)}, .lineage = std::move(lineage), .step = step, .digest = digest}));
}

ReloadSource FromPublishers(std::vector<std::string> endpoints, std::string lineage,
                            std::optional<std::uint64_t> step) {
  return ReloadSource(std::make_unique<PublisherSource>(
      PeerRequest{.endpoints = std::move(endpoints), .lineage = std::move(lineage), .step = step}));
}

ReloadSource FromOpenPublishers(PeerRequest request, std::unique_ptr<FetchSession> session) {
  return ReloadSource(std::make_unique<PublisherSource>(std::move(request), std::move(session)));
}

}  // namespace layercast
