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

SnapshotPart::SnapshotPart(wire::Subscribed subscribed, ChunkReceiver& receiver, const RelayAccess& access)
    : offer_(subscribed.offer_id), digests_(std::move(subscribed.chunk_digests)), receiver_(receiver), access_(access) {
  TakeAmax(subscribed.amax);
  PublisherSession& publisher = receiver.parts().publisher;
  if (!publisher.takes_relays()) {
    source_ = std::make_unique<PublisherSource>(receiver_, offer_);
  } else if (const std::optional<wire::FetchFrom> from = publisher.TakeFetchFrom()) {
    TakeSource(*from);
  }
}

void SnapshotPart::Request() {
  OrLoseRelay([&] {
    for (; source_ != nullptr && submitted_ < source_->ready() && source_->HasRoom(); ++submitted_) {
      source_->Submit(submitted_);
    }
  });
}

bool SnapshotPart::PollFor(std::uint32_t chunk) {
  const std::string stage = receiver_.StageOf(chunk);
  if (here_.contains(chunk)) {  // only its digest is missing: that wait is not held against who brought the chunk
    PollLink("the digest of " + stage);
    return false;
  }
  const auto begin = Deadline::Clock::now();
  const bool came = WaitForChunk(stage);
  note_.WaitedSince(begin);
  note_.Tell(bytes_done_);
  return came;
}

void SnapshotPart::PollLink(const std::string& stage) {
  if (std::optional<wire::Message> message = receiver_.PollMessage(stage)) Take(*std::move(message), stage);
}

bool SnapshotPart::WaitForChunk(const std::string& stage) {
  if (source_ == nullptr) {
    PollLink(stage);
    return false;
  }
  return TakeChunk(stage, ChunkReceiver::kPollStep);
}

void SnapshotPart::TakeLanded() {
  if (here_.empty() || !here_.begin()->second.memory->queues_digests()) return;
  const std::string stage = receiver_.StageOf(here_.begin()->first);
  while (source_ != nullptr && TakeChunk(stage, std::chrono::milliseconds(0))) {
  }
}

bool SnapshotPart::TakeChunk(const std::string& stage, std::chrono::milliseconds step) {
  bool came = false;
  OrLoseRelay([&] {
    std::optional<ArrivedChunk> arrived = source_->Poll(stage, step);
    came = arrived.has_value();
    if (!came) return;
    const std::uint32_t chunk = arrived->chunk;
    here_.emplace(chunk, *std::move(arrived));
  });
  return came;
}

std::optional<std::vector<RegionView>> SnapshotPart::Verified(std::uint32_t chunk) {
  std::optional<std::vector<RegionView>> views;
  OrLoseRelay([&] {
    views = receiver_.Verified(here_.at(chunk), digests_[chunk]);
    if (relay_ != nullptr) receiver_.NoteRelayed(chunk, relay_->place().endpoint);
    receiver_.NoteKept(chunk);
  });
  return views;
}

void SnapshotPart::Done(std::uint32_t chunk) {
  here_.erase(chunk);
  source_->Done(chunk);
  done_ = chunk + 1;
  bytes_done_ += receiver_.schedule().chunks()[chunk].num_bytes;
  note_.Tell(bytes_done_);
  if (done_ == receiver_.schedule().chunks().size() && relay_ != nullptr) DropSource();  // it may let go of us
}

void SnapshotPart::End() {
  if (source_ != nullptr) source_->End();
}

void SnapshotPart::LookAtLink(const std::string& stage) {
  while (std::optional<wire::Message> message = receiver_.MessageThatCame(stage)) Take(*std::move(message), stage);
  OrLoseRelay([&] {
    if (source_ != nullptr) source_->LookAtLink(stage);
  });
}

void SnapshotPart::Take(wire::Message message, const std::string& stage) {
  if (const auto* more = std::get_if<wire::MoreDigests>(&message)) return TakeDigests(*more);
  const auto* from = std::get_if<wire::FetchFrom>(&message);
  PublisherSession& publisher = receiver_.parts().publisher;
  if (from == nullptr || !publisher.takes_relays()) publisher.link().RefuseAnswer(stage, "'more_digests'", message);
  TakeSource(*from);
}

void SnapshotPart::TakeDigests(const wire::MoreDigests& more) {
  const std::vector<Digest>& digests = more.chunk_digests;
  const std::size_t chunks = receiver_.schedule().chunks().size();
  if (digests.empty() || digests.size() > chunks - digests_.size()) {
    receiver_.Refuse("sent " + std::to_string(digests.size()) + " chunk digests more, expected 1 to " +
                     std::to_string(chunks - digests_.size()));
  }
  digests_.insert(digests_.end(), digests.begin(), digests.end());
  TakeAmax(more.amax);
}

void SnapshotPart::TakeAmax(const std::vector<wire::AxisAmax>& amaxes) {
  for (const auto& [tensor, values] : amaxes) {
    receiver_.CheckAmax(tensor, values);
    const std::uint32_t number = receiver_.parts().first_tensor + tensor;
    if (!known_amax_.insert(number).second) {
      receiver_.Refuse("sent the magnitudes of tensor " + std::to_string(tensor) + " twice");
    }
    receiver_.sink().OnAxisAmax(number, values);
  }
}

void SnapshotPart::TakeSource(const wire::FetchFrom& from) {
  if (source_ != nullptr && relay_ == nullptr) {
    receiver_.Refuse("sent us to '" + from.relay + "', where it serves us itself");
  }
  DropSource();
  if (done_ == receiver_.schedule().chunks().size()) return;  // it was sent before the publisher heard of that
  if (from.relay.empty()) {
    source_ = std::make_unique<PublisherSource>(receiver_, offer_);
    return;
  }
  const RelayPlace place{from.relay, from.offer};
  try {
    if (access_.lost.contains(place.endpoint)) {
      throw Error(ErrorCode::kUnavailable, "relay " + place.endpoint + ": it was lost before");
    }
    auto relay = NamingPeer({"relay", place.endpoint}, [&] {
      return std::make_unique<RelaySource>(place, receiver_, access_.options, access_.self);
    });
    relay_ = relay.get();
    source_ = std::move(relay);
  } catch (const Error& error) {
    LoseRelay(place, error);
  }
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
  ThrowIfStopped(access_.options.stop, "relay " + relay.endpoint);
  if (receiver_.deadline().Passed()) throw error;
  const std::string why = std::string(error.what()).substr(0, kMostWords);
  log::warn("{}", why);
  access_.lost.insert(relay.endpoint);
  DropSource();
  receiver_.Send(wire::RelayLost{relay.endpoint, relay.offer, why});
}

// Drops the source, and with it what it has brought and nobody has consumed yet.
void SnapshotPart::DropSource() {
  relay_ = nullptr;
  source_.reset();
  here_.clear();
  submitted_ = done_;
}

}  // namespace layercast
