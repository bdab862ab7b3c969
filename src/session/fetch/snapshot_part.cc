#include "src/session/fetch/snapshot_part.h"

#include <chrono>
#include <utility>

#include "src/base/log.h"
#include "src/base/stop_check.h"
#include "src/session/link/naming_peer.h"

namespace layercast {
namespace {

// How much of a relay's error goes into two logs, this one and the publisher's: the error may be of any length.
constexpr std::size_t kMostWords = 500;

}  // namespace

SnapshotPart::SnapshotPart(ChunkFetch& own, wire::Subscribed subscribed, std::uint32_t first_tensor, FetchSink& sink,
                           std::set<std::string>& lost_relays, const OfferedDelta* delta)
    : own_(own), offer_(subscribed.offer_id), first_tensor_(first_tensor), sink_(sink), lost_relays_(lost_relays) {
  TakeAnnounced(std::move(subscribed));
  if (delta != nullptr) {
    delta_ = std::make_unique<DeltaFetch>(*delta, own_);
    source_ = &delta_->chunks();
  } else if (!own_.peer().takes_relays()) {
    TakeFromPublisher();
  } else if (const std::optional<wire::FetchFrom> from = own_.peer().TakeFetchFrom()) {
    TakeSource(*from);
  }
}

void SnapshotPart::Request() {
  OrLoseRelay([&] {
    if (source_ != nullptr) source_->Request();
  });
}

bool SnapshotPart::PollFor(std::uint32_t chunk) {
  const std::string stage = StageOf(chunk);
  if (here_.contains(chunk)) {  // only its digest is missing: that wait is not held against who brought the chunk
    PollLink("the digest of " + stage);
    return false;
  }
  const auto begin = Deadline::Clock::now();
  const bool came = WaitForChunk(stage);
  note_.WaitedSince(begin);
  note_.Tell();
  return came;
}

void SnapshotPart::PollLink(const std::string& stage) {
  if (std::optional<wire::Message> message = own_.PollMessage(stage)) Take(*std::move(message), stage);
}

bool SnapshotPart::WaitForChunk(const std::string& stage) {
  if (source_ == nullptr) {
    PollLink(stage);
    return false;
  }
  return TakeChunk(stage, ChunkFetch::kPollStep);
}

void SnapshotPart::TakeLanded() {
  if (here_.empty() || !here_.begin()->second.memory->queues_digests()) return;
  const std::string stage = StageOf(here_.begin()->first);
  while (source_ != nullptr && TakeChunk(stage, std::chrono::milliseconds(0))) {
  }
}

bool SnapshotPart::TakeChunk(const std::string& stage, std::chrono::milliseconds step) {
  bool came = false;
  OrLoseRelay([&] {
    std::optional<ArrivedChunk> arrived = Poll(stage, step);
    came = arrived.has_value();
    if (!came) return;
    const std::uint32_t chunk = arrived->chunk;
    here_.emplace(chunk, *std::move(arrived));
  });
  return came;
}

std::optional<ArrivedChunk> SnapshotPart::PollDelta(const std::string& stage, std::chrono::milliseconds step) {
  try {
    return delta_->Poll(stage, step);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kFailedPrecondition) throw;
    LeaveDelta(stage, error);
    return std::nullopt;
  }
}

void SnapshotPart::LeaveDelta(const std::string& stage, const Error& error) {
  log::warn("{}: the rest comes dense", error.what());
  for (const auto& [chunk, arrived] : here_) source_->Done(chunk);
  delta_->Drain(stage);
  DropSource();
  own_.stats().delta->taken = false;
  own_.stats().delta->why = error.what();
  TakeFromPublisher();
}

std::optional<std::vector<RegionView>> SnapshotPart::Verified(std::uint32_t chunk) {
  std::optional<std::vector<RegionView>> views;
  OrLoseRelay([&] {
    views = own_.Verified(here_.at(chunk), digests_[chunk], hashes_.empty() ? nullptr : &hashes_[chunk]);
    if (relay_ != nullptr) NoteRelayed(chunk);
    if (KeptChunks* const kept = own_.memory().kept) kept->Ready(chunk);  // who takes from this one may have it
  });
  return views;
}

void SnapshotPart::NoteRelayed(std::uint32_t chunk) {
  PublisherShare& share = own_.peer().share();
  share.relayed_bytes += own_.schedule().chunks()[chunk].num_bytes;
  const std::string& endpoint = relay_->place().endpoint;
  if (share.relays.empty() || share.relays.back() != endpoint) share.relays.push_back(endpoint);
}

void SnapshotPart::Done(std::uint32_t chunk) {
  here_.erase(chunk);
  source_->Done(chunk);
  done_ = chunk + 1;
  note_.Used(own_.schedule().chunks()[chunk].num_bytes);
  if (done_ < own_.schedule().chunks().size()) return note_.Tell();
  note_.TellNow();
  if (relay_ == nullptr) return;
  relay_->TellTaken();
  DropSource();  // it may let go of us
}

void SnapshotPart::End() {
  if (source_ == &own_) own_.ExpectOffered(offer_);
}

void SnapshotPart::LookAtLink(const std::string& stage) {
  while (std::optional<wire::Message> message = own_.MessageThatCame(stage)) Take(*std::move(message), stage);
  OrLoseRelay([&] {
    if (relay_ != nullptr) relay_->LookAtLink(stage);
  });
}

void SnapshotPart::Take(wire::Message message, const std::string& stage) {
  if (const auto* more = std::get_if<wire::MoreDigests>(&message)) {
    CheckMore(*more);
    return TakeAnnounced(std::move(message));
  }
  if (const auto* signed_digests = std::get_if<wire::SignedDigests>(&message)) return TakeSigned(*signed_digests);
  const auto* from = std::get_if<wire::FetchFrom>(&message);
  PublisherSession& publisher = own_.peer();
  if (from == nullptr || !publisher.takes_relays()) publisher.link().RefuseAnswer(stage, "'more_digests'", message);
  TakeSource(*from);
}

void SnapshotPart::CheckMore(const wire::MoreDigests& more) const {
  const std::vector<Digest>& digests = more.chunk_digests;
  const std::size_t chunks = own_.schedule().chunks().size();
  if (digests.empty() || digests.size() > chunks - digests_.size()) {
    own_.peer().Refuse("sent " + std::to_string(digests.size()) + " chunk digests more, expected 1 to " +
                       std::to_string(chunks - digests_.size()));
  }
}

void SnapshotPart::TakeAnnounced(wire::Message message) {
  if (!own_.peer().expects_signed()) return Believe(message);
  if (unsigned_) own_.peer().Refuse("sent '" + std::string(wire::MessageName(message)) + "', expected a signature");
  unsigned_ = std::move(message);
}

void SnapshotPart::TakeSigned(const wire::SignedDigests& signed_digests) {
  if (!unsigned_) own_.peer().Refuse("sent a signature of nothing that it has announced");
  own_.peer().CheckSigned(static_cast<std::uint32_t>(digests_.size()), *unsigned_, signed_digests);
  Believe(*std::exchange(unsigned_, std::nullopt));
  hashes_.insert(hashes_.end(), signed_digests.chunk_hashes.begin(), signed_digests.chunk_hashes.end());
  if (hashes_.size() != digests_.size()) {
    own_.peer().Refuse("has signed " + std::to_string(hashes_.size()) + " chunks' hashes, expected " +
                       std::to_string(digests_.size()));
  }
  vouched_for_ = true;
}

void SnapshotPart::Believe(const wire::Message& announced) {
  const auto believe = [this](const auto& message) {
    digests_.insert(digests_.end(), message.chunk_digests.begin(), message.chunk_digests.end());
    TakeAmax(message.amax);
  };
  if (const auto* subscribed = std::get_if<wire::Subscribed>(&announced)) return believe(*subscribed);
  believe(std::get<wire::MoreDigests>(announced));
}

void SnapshotPart::TakeAmax(const std::vector<wire::AxisAmax>& amaxes) {
  for (const auto& [tensor, values] : amaxes) {
    own_.peer().CheckAmax(tensor, values);
    const std::uint32_t number = first_tensor_ + tensor;
    if (!known_amax_.insert(number).second) {
      own_.peer().Refuse("sent the magnitudes of tensor " + std::to_string(tensor) + " twice");
    }
    sink_.OnAxisAmax(number, values);
  }
}

void SnapshotPart::TakeSource(const wire::FetchFrom& from) {
  if (source_ == &own_) own_.peer().Refuse("sent us to '" + from.relay + "', where it serves us itself");
  if (relay_ != nullptr) relay_->TellTaken();
  DropSource();
  if (done_ == own_.schedule().chunks().size()) return;  // it was sent before the publisher heard of that
  if (from.relay.empty()) return TakeFromPublisher();
  const RelayPlace place{from.relay, from.offer};
  try {
    if (lost_relays_.contains(place.endpoint)) {
      throw Error(ErrorCode::kUnavailable, "relay " + place.endpoint + ": it was lost before");
    }
    NamingPeer({"relay", place.endpoint}, [&] { relay_ = std::make_unique<RelayFetch>(place, own_, done_); });
    source_ = &relay_->chunks();
  } catch (const Error& error) {
    LoseRelay(place, error);
  }
}

// The publisher has all chunks from the beginning.
void SnapshotPart::TakeFromPublisher() {
  source_ = &own_;
  for (std::uint32_t chunk = done_; chunk < own_.schedule().chunks().size(); ++chunk) own_.Want(offer_, chunk);
}

template <typename Call>
void SnapshotPart::OrLoseRelay(const Call& call) {
  if (relay_ == nullptr) return call();
  const RelayPlace relay = relay_->place();
  try {
    NamingPeer({"relay", relay.endpoint}, call);
  } catch (const Error& error) {
    LoseRelay(relay, error);
  }
}

void SnapshotPart::LoseRelay(const RelayPlace& relay, const Error& error) {
  // If this attempt was given up, the failure is not the relay's fault, and is not reported.
  ThrowIfStopped(own_.peer().options().stop, "relay " + relay.endpoint);
  if (own_.deadline().Passed()) throw error;
  const std::string why = std::string(error.what()).substr(0, kMostWords);
  log::warn("{}", why);
  lost_relays_.insert(relay.endpoint);
  DropSource();
  own_.peer().link().Send(wire::RelayLost{relay.endpoint, relay.offer, why});
}

// Drops the source, and with it what it has brought and nobody has consumed yet.
void SnapshotPart::DropSource() {
  source_ = nullptr;
  relay_.reset();
  delta_.reset();
  here_.clear();
}

}  // namespace layercast
