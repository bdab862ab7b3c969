// A receiver's session with one publisher, or with a relay of one: the handshake, what the peer offers, what it was
// asked for and whether it answers that, and the channel to it. A fetch session has one for each publisher of a
// version. Resource; one thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "src/session/fetch/fetch.h"
#include "src/session/link/kept_peers.h"
#include "src/session/link/publisher_link.h"
#include "src/session/relay_tree/relay_tree.h"
#include "src/session/signing/signed_text.h"
#include "src/transport/channel/channel.h"
#include "src/wire/frames.h"

namespace layercast {

class PublisherSession {
 public:
  PublisherSession(PeerName peer, ReceiverIdentity self, const FetchOptions& options, FailPoints& failpoints);
  // With the relay at `endpoint`, which `publisher` has named. Its channels are not measured: that would delay the
  // first byte, once for each step of the tree.
  PublisherSession(const std::string& endpoint, const PublisherSession& publisher);
  ~PublisherSession();
  PublisherSession(const PublisherSession&) = delete;
  PublisherSession& operator=(const PublisherSession&) = delete;

  // Shakes hands, opens the version and connects a channel.
  void Open(const std::string& lineage, std::optional<std::uint64_t> step, Deadline deadline);
  // Asks for a schedule, by its digest. The answer is `subscribed`, or `need_schedule`, upon which it is sent whole.
  // `takes_relays` says that chunks may come from other receivers, if that spares the publisher anything. `serves_at`
  // is where this receiver relays what comes. `amax_requests` are sorted by tensor.
  void Ask(const Schedule& schedule, std::span<const AmaxRequest> amax_requests, bool takes_relays = false,
           const RelayPlace& serves_at = {});
  void AskAgain(const Schedule& schedule);
  // Whether each message that announces chunks must be followed by a signature, which CheckSigned has checked before
  // the message is believed.
  bool expects_signed() const { return options_.expects_signed(); }
  // Throws kPermissionDenied unless somebody who is trusted has signed what `announced` says, and that its chunks, from
  // the schedule's number `first` on, have those hashes.
  void CheckSigned(std::uint32_t first, const wire::Message& announced,
                   const wire::SignedDigests& signed_digests) const;
  // Throws kCorrupt if the publisher answers more than was asked.
  void CheckAnswer(const wire::Subscribed& subscribed, const Schedule& schedule) const;
  // Whether magnitudes of that tensor were asked for.
  bool AskedAmaxOf(std::uint32_t tensor) const { return FindRequest(tensor) != nullptr; }
  // Throws unless these are magnitudes, and as many of them were asked for of that tensor.
  void CheckAmax(std::uint32_t tensor, std::span<const float> amax) const;
  // Throws unless this can be the magnitude of a whole tensor: -1 says that it is not known.
  void CheckTensorAmax(std::uint32_t tensor, float amax) const;
  // Throws an error about what the peer sent.
  [[noreturn]] void Refuse(const std::string& what) const;
  // Asks what serving has cost the publisher while this session was open, and takes its answer into share(), perhaps
  // later. 0 if it does not say, or not soon; that is no error, since the receiver already has everything.
  void AskServingCost() noexcept;
  void AwaitServingCost() noexcept;
  // Whether nothing is under way, so that the connections may be kept for the next session.
  void SetAtRest(bool at_rest) { at_rest_ = at_rest; }
  // Closes the channel: nothing is read or written over it any more. Idempotent.
  void CloseChannel() noexcept;
  // Ends the session. What can be kept of its connections is, once this object goes.
  void Close() noexcept;

  const PeerName& peer() const { return peer_; }
  const std::string& endpoint() const { return peer().endpoint; }
  const FetchOptions& options() const { return options_; }
  FailPoints& failpoints() const { return failpoints_; }
  const Manifest& manifest() const { return manifest_; }
  PublishMode mode() const { return mode_; }
  const std::string& run() const { return run_; }  // which run of a trainer the version is of; empty: not known
  const ChannelUse& channel_use() const { return channel_use_; }
  const std::string& config() const { return config_; }  // of the version's model; empty: none was sent
  // What came from this publisher, and what that cost it. Counted by who takes it.
  PublisherShare& share() { return share_; }
  PublisherLink& link() { return *link_; }
  FetchingEnd& channel() { return *channel_; }
  // Whether chunks may come from relays. Then no byte moves before the publisher has said where from.
  bool takes_relays() const { return asked_.takes_relays; }
  // Notes what the publisher said of where chunks come from, before it answered what was asked.
  void Note(const wire::FetchFrom& from) { fetch_from_ = from; }
  std::optional<wire::FetchFrom> TakeFetchFrom() { return std::exchange(fetch_from_, std::nullopt); }

 private:
  wire::Welcome Greet(Deadline deadline);
  void SayBye() noexcept;
  void ExpectDigest() const;
  void AskSigned(const Schedule& schedule);
  const AmaxRequest* FindRequest(std::uint32_t tensor) const;  // null: nothing was asked for
  [[noreturn]] void RefuseAmax(std::uint32_t tensor, float amax) const;

  const ReceiverIdentity self_;
  const FetchOptions options_;
  FailPoints& failpoints_;
  const PeerName peer_;
  KeptChannel kept_channel_;  // of the session before, until one is chosen
  std::unique_ptr<PublisherLink> link_;
  bool link_was_kept_ = false;
  wire::Hello hello_;  // that opened it
  Manifest manifest_;
  PublishMode mode_ = PublishMode::kSnapshot;
  std::string run_;
  ChannelUse channel_use_;
  std::string config_;
  PublisherShare share_;
  std::unique_ptr<FetchingEnd> channel_;
  wire::Subscribe asked_;                  // its schedule is left out
  std::optional<SignedText> signed_text_;  // empty: nothing is signed
  std::optional<wire::FetchFrom> fetch_from_;
  std::string channel_address_;
  bool cost_awaited_ = false;
  bool at_rest_ = false;
  bool channel_rests_ = false;
  bool closed_ = false;
};

}  // namespace layercast
