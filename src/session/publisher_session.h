// A receiver's session with one publisher: its handshake, what it offers, the channel to it. A fetch session has one
// for each publisher of a version. Resource; one thread only.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "src/session/fetch.h"
#include "src/session/publisher_link.h"
#include "src/session/relay_tree.h"
#include "src/transport/channel.h"
#include "src/wire/frames.h"

namespace layercast {

class PublisherSession {
 public:
  PublisherSession(PeerName peer, const FetchOptions& options)
      : options_(options), link_(std::move(peer), options.peer_timeout, options.stop) {}
  ~PublisherSession() { Close(); }
  PublisherSession(const PublisherSession&) = delete;
  PublisherSession& operator=(const PublisherSession&) = delete;

  // Shakes hands, opens the version and connects a channel.
  void Open(const ReceiverIdentity& self, const std::string& lineage, std::optional<std::uint64_t> step,
            Deadline deadline);
  // Asks for a schedule; the answer to it is `subscribed`, or `need_schedule`, which has it sent whole.
  // `takes_relays`: the chunks may come from other receivers, where that spares the publisher anything. `serves_at`:
  // where this receiver serves on what comes.
  void Ask(const Schedule& schedule, std::span<const AmaxRequest> amax_requests, bool takes_relays = false,
           const RelayPlace& serves_at = {});
  void AskAgain(const Schedule& schedule);
  // Throws kCorrupt where it answers more than was asked.
  void CheckAnswer(const wire::Subscribed& subscribed, const Schedule& schedule) const;
  // What serving has cost it while this session was open; 0 where it does not say, or not soon: then it has other
  // troubles, which are not this receiver's, who has everything.
  double AskServingCoreSeconds() noexcept;
  // Nothing is read from it, and nothing written by it, any more. Idempotent.
  void CloseChannel() noexcept;
  void Close() noexcept;

  const PeerName& peer() const { return link_.peer(); }
  const std::string& endpoint() const { return peer().endpoint; }
  const Manifest& manifest() const { return manifest_; }
  PublishMode mode() const { return mode_; }
  const ChannelUse& channel_use() const { return channel_use_; }
  const wire::TrainerCost& cost() const { return cost_; }  // of a snapshot
  PublisherLink& link() { return link_; }
  FetchingEnd& channel() { return *channel_; }
  // No byte moves before it has said where from.
  bool takes_relays() const { return asked_.takes_relays; }
  // It wants to hear how this receiver gets on: others may depend on that.
  bool hears_progress() const { return asked_.takes_relays || !asked_.relay_endpoint.empty(); }
  // What it has said of where chunks come from before it answered what was asked.
  void Note(const wire::FetchFrom& from) { fetch_from_ = from; }
  std::optional<wire::FetchFrom> TakeFetchFrom() { return std::exchange(fetch_from_, std::nullopt); }

 private:
  const FetchOptions options_;
  PublisherLink link_;
  Manifest manifest_;
  PublishMode mode_ = PublishMode::kSnapshot;
  ChannelUse channel_use_;
  wire::TrainerCost cost_;
  std::unique_ptr<FetchingEnd> channel_;
  wire::Subscribe asked_;  // its schedule is left out
  std::optional<wire::FetchFrom> fetch_from_;
  bool closed_ = false;
};

}  // namespace layercast
