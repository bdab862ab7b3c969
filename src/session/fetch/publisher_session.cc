#include "src/session/fetch/publisher_session.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>
#include <utility>

#include "layercast/error.h"
#include "src/base/log.h"
#include "src/session/choose/channel_chooser.h"
#include "src/session/link/my_host.h"
#include "src/session/link/trainer_cost.h"

namespace layercast {
namespace {

constexpr std::chrono::milliseconds kCostTime{200};
constexpr float kUnknownAmax = -1.0F;  // as in manifests

bool IsMagnitude(float amax) { return std::isfinite(amax) && amax >= 0.0F; }

// A relay signs nothing: what it brings is held against the publisher's hashes.
FetchOptions OfRelay(FetchOptions options) {
  options.measure = false;
  options.may_be_unsigned = true;
  options.kept = nullptr;
  return options;
}

wire::Hello MakeHello(const ReceiverIdentity& self, const std::string& lineage, std::optional<std::uint64_t> step,
                      const Digest& digest) {
  wire::Hello hello;
  hello.engine = self.engine;
  hello.attempt = self.attempt;
  hello.rank = static_cast<std::uint32_t>(self.rank);
  hello.ranks = static_cast<std::uint32_t>(self.ranks);
  hello.host = MyHost();
  hello.lineage = lineage;
  hello.step_known = step.has_value() || digest;
  hello.step = step.value_or(0);
  hello.digest = digest;
  return hello;
}

// The layout of the publisher's last manifest; null: not known.
std::shared_ptr<const ManifestLayout> LayoutOf(const FetchOptions& options, const std::string& endpoint) {
  if (options.layouts == nullptr) return nullptr;
  const auto known = options.layouts->find(endpoint);
  return known == options.layouts->end() ? nullptr : known->second;
}

}  // namespace

PublisherSession::PublisherSession(PeerName peer, ReceiverIdentity self, const FetchOptions& options,
                                   FailPoints& failpoints)
    : self_(std::move(self)), options_(options), failpoints_(failpoints), peer_(std::move(peer)) {
  KeptPeer kept = options.kept == nullptr ? KeptPeer() : options.kept->Take(peer_);
  link_was_kept_ = kept.link != nullptr;
  if (!link_was_kept_) {
    link_ = std::make_unique<PublisherLink>(peer_, options.keys, options.peer_timeout, options.stop);
    return;
  }
  link_ = std::move(kept.link);
  link_->BeginAnew(options.peer_timeout, options.stop);
  kept_channel_ = std::move(kept.channel);
}

PublisherSession::PublisherSession(const std::string& endpoint, const PublisherSession& publisher)
    : PublisherSession({"relay", endpoint}, publisher.self_, OfRelay(publisher.options_), publisher.failpoints_) {}

PublisherSession::~PublisherSession() {
  Close();
  if (options_.kept == nullptr || !at_rest_) return;
  KeptChannel channel{channel_use_.name, channel_address_, nullptr};
  if (channel_rests_) channel.end = std::move(channel_);
  options_.kept->Keep({std::move(link_), std::move(channel)});
}

void PublisherSession::Open(const std::string& lineage, std::optional<std::uint64_t> step, Deadline deadline) {
  deadline = deadline.OrStop(options_.stop);
  hello_ = MakeHello(self_, lineage, step, options_.digest);
  const wire::Welcome welcome = Greet(deadline);
  manifest_ = Manifest::Decode(welcome.manifest, LayoutOf(options_, endpoint()));
  ExpectDigest();
  run_ = welcome.run;
  config_.assign(reinterpret_cast<const char*>(welcome.config.data()), welcome.config.size());
  mode_ = welcome.stream ? PublishMode::kStream : PublishMode::kSnapshot;
  const ExpectAlive expect_alive = [this](Deadline until) { link_->ExpectAlive(until, "choosing a data channel"); };
  ChosenChannel chosen = options_.channels->Choose(welcome, expect_alive, options_.channel, deadline, options_.measure,
                                                   std::move(kept_channel_));
  channel_use_ = {chosen.name, chosen.lane, chosen.reason, chosen.probed_gb_per_s};
  channel_ = std::move(chosen.end);
  channel_address_ = std::move(chosen.address);
  share_.endpoint = endpoint();
  share_.channel = channel_use_.name;
  layercast::Note(welcome.cost, share_);
  at_rest_ = true;
}

// Over a link that was kept, unless that shows to be lost only now. What the publisher may have taken of it is ended.
wire::Welcome PublisherSession::Greet(Deadline deadline) {
  if (!link_was_kept_) return link_->Greet(hello_, deadline);
  try {
    return link_->Greet(hello_, deadline.AtMost(KeptPeers::kAnswer));
  } catch (const Error& error) {
    const bool lost = error.code() == ErrorCode::kUnavailable || error.code() == ErrorCode::kDeadlineExceeded;
    if (!lost || deadline.Passed()) throw;
    log::debug("connecting anew: {}", error.what());
  }
  SayBye();
  link_ = std::make_unique<PublisherLink>(peer_, options_.keys, options_.peer_timeout, options_.stop);
  kept_channel_ = {};
  return link_->Greet(hello_, deadline);
}

void PublisherSession::ExpectDigest() const {
  if (!options_.digest || options_.digest == manifest_.version().digest) return;
  throw Error(ErrorCode::kCorrupt, "publisher " + endpoint() + ": expected the version of digest " +
                                       options_.digest.ToHex() + ", got " + manifest_.version().ToString());
}

void PublisherSession::Ask(const Schedule& schedule, std::span<const AmaxRequest> amax_requests, bool takes_relays,
                           const RelayPlace& serves_at) {
  asked_.schedule_digest = schedule.digest();
  asked_.amax_requests.assign(amax_requests.begin(), amax_requests.end());
  asked_.takes_relays = takes_relays && !channel_->attaches();
  asked_.relay_endpoint = serves_at.endpoint;
  asked_.relay_offer = serves_at.offer;
  if (expects_signed()) AskSigned(schedule);
  link_->Send(asked_);
}

void PublisherSession::AskSigned(const Schedule& schedule) {
  const wire::AskSigned ask{.nonce = RandomSecret().bytes()};
  signed_text_.emplace(hello_, ask, manifest_.version(), manifest_.Encode(), run_, std::as_bytes(std::span(config_)),
                       schedule);
  link_->Send(ask);
}

void PublisherSession::CheckSigned(std::uint32_t first, const wire::Message& announced,
                                   const wire::SignedDigests& signed_digests) const {
  const TrustedKeys& trusted = *options_.keys.trusted();
  const std::string what = peer().text() + ": version " + manifest_.version().ToString() + ": ";
  if (!trusted.Has(signed_digests.key)) {
    throw Error(ErrorCode::kPermissionDenied, what + "signed by key " + ShortText(signed_digests.key) +
                                                  ", expected one of " + trusted.source() + ": " + trusted.Text());
  }
  const std::vector<std::byte> text = signed_text_->Of(first, signed_digests.chunk_hashes, announced);
  if (HasSigned(signed_digests.key, text, signed_digests.signature)) return;
  throw Error(ErrorCode::kPermissionDenied, what + "key " + ShortText(signed_digests.key) +
                                                " has not signed what this session was told: it was changed, or is "
                                                "another session's, version's or step's");
}

void PublisherSession::AskAgain(const Schedule& schedule) {
  wire::Subscribe whole = asked_;
  whole.schedule = schedule.Encode();
  link_->Send(whole);
}

void PublisherSession::CheckAnswer(const wire::Subscribed& subscribed, const Schedule& schedule) const {
  const bool snapshot = mode_ == PublishMode::kSnapshot;  // a stream's come with its tensors
  const auto check = [&](const char* what, std::size_t got, std::size_t asked) {
    const std::size_t most = snapshot ? asked : 0;  // fewer may come now, and the rest with later digests
    if (got <= most) return;
    Refuse("sent " + std::to_string(got) + " " + what + ", expected at most " + std::to_string(most));
  };
  check("chunk digests", subscribed.chunk_digests.size(), schedule.chunks().size());
  std::set<std::uint32_t> tensors;
  for (const wire::AxisAmax& amax : subscribed.amax) tensors.insert(amax.tensor);
  check("tensors' magnitudes", tensors.size(), asked_.amax_requests.size());
}

const AmaxRequest* PublisherSession::FindRequest(std::uint32_t tensor) const {
  const auto asked = std::ranges::lower_bound(asked_.amax_requests, tensor, {}, &AmaxRequest::tensor);
  return asked != asked_.amax_requests.end() && asked->tensor == tensor ? &*asked : nullptr;
}

void PublisherSession::CheckAmax(std::uint32_t tensor, std::span<const float> amax) const {
  const AmaxRequest* const asked = FindRequest(tensor);
  const std::int64_t expected =
      asked == nullptr ? 0 : NumKept(AsRead(manifest().entry(tensor).spec, *asked).shape, asked->kept);
  if (asked == nullptr || expected != std::ssize(amax)) {
    Refuse("sent " + std::to_string(amax.size()) + " magnitudes of tensor " + std::to_string(tensor) + ", expected " +
           std::to_string(expected));
  }
  const auto none = std::ranges::find_if_not(amax, IsMagnitude);
  if (none != amax.end()) RefuseAmax(tensor, *none);
}

void PublisherSession::CheckTensorAmax(std::uint32_t tensor, float amax) const {
  if (!IsMagnitude(amax) && amax != kUnknownAmax) RefuseAmax(tensor, amax);
}

void PublisherSession::RefuseAmax(std::uint32_t tensor, float amax) const {
  Refuse("sent " + std::to_string(amax) + " as a magnitude of tensor " + std::to_string(tensor) +
         ", expected a finite one of at least 0");
}

void PublisherSession::Refuse(const std::string& what) const {
  throw Error(ErrorCode::kCorrupt, peer().text() + " " + what);
}

void PublisherSession::AskServingCost() noexcept {
  try {
    link_->Send(wire::CostRequest{});
    cost_awaited_ = true;
  } catch (const std::exception& error) {
    log::debug("{}", error.what());
  }
}

void PublisherSession::AwaitServingCost() noexcept {
  if (!std::exchange(cost_awaited_, false)) return;
  try {
    const Deadline deadline = Deadline::After(kCostTime);
    while (const auto message = link_->Receive(deadline, "asking what serving has cost")) {
      const auto* const cost = std::get_if<wire::ServingCost>(&*message);
      if (cost == nullptr) continue;
      share_.serving_core_seconds = static_cast<double>(cost->core_us) * 1e-6;
      return;
    }
  } catch (const std::exception& error) {
    log::debug("{}", error.what());
  }
}

void PublisherSession::CloseChannel() noexcept {
  if (channel_ != nullptr) channel_->Close();
}

void PublisherSession::Close() noexcept {
  if (closed_) return;
  closed_ = true;
  channel_rests_ = options_.kept != nullptr && at_rest_ && channel_ != nullptr && channel_->Rest();
  if (!channel_rests_) CloseChannel();
  SayBye();
}

void PublisherSession::SayBye() noexcept {
  try {
    link_->Send(wire::Bye{});
  } catch (...) {  // a publisher that is gone need not be told
  }
}

}  // namespace layercast
