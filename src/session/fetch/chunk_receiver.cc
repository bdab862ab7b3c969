#include "src/session/fetch/chunk_receiver.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>

#include "layercast/error.h"
#include "src/session/link/naming_peer.h"

namespace layercast {
namespace {

using Clock = Deadline::Clock;

constexpr std::chrono::milliseconds kReasonTime{500};

constexpr float kUnknownAmax = -1.0F;  // as in manifests

bool IsMagnitude(float amax) { return std::isfinite(amax) && amax >= 0.0F; }

double SecondsSince(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

}  // namespace

std::optional<wire::Message> ChunkReceiver::PollMessage(const std::string& stage, std::chrono::milliseconds step) {
  const auto begin = Clock::now();
  std::optional<wire::Message> message = parts_.publisher.link().Receive(deadline_.AtMost(step), stage);
  parts_.stats.receive_seconds += SecondsSince(begin);
  if (!message && deadline_.Passed()) {
    throw Error(ErrorCode::kDeadlineExceeded, peer().text() + ", " + stage + ": no answer before the deadline");
  }
  return message;
}

// Makes a call on the channel; its errors name the publisher. If the publisher has let go of what is read, it says why
// over the control link, perhaps a moment later, and that is the better error.
template <typename Call>
auto ChunkReceiver::OverChannel(const Call& call) {
  try {
    return NamingPeer(peer(), call);
  } catch (const Error& error) {
    const Deadline soon = Deadline::After(kReasonTime);
    const std::string stage = "reading what it offers no more";
    while (error.code() == ErrorCode::kNotFound && parts_.publisher.link().Receive(soon, stage)) {
    }
    throw;
  }
}

void ChunkReceiver::Submit(std::uint32_t chunk, std::uint64_t offer, std::span<const Region> regions,
                           std::uint64_t bytes) {
  OverChannel([&] { window_.Submit(chunk, offer, regions, bytes); });
}

void ChunkReceiver::ExpectOffered(std::uint64_t offer) {
  OverChannel([&] { window_.ExpectOffered(offer); });
}

std::optional<ArrivedChunk> ChunkReceiver::PollChunk(const std::string& stage, std::chrono::milliseconds step) {
  const auto begin = Clock::now();
  std::optional<ArrivedChunk> arrived = OverChannel([&] { return window_.Poll(deadline_.AtMost(step)); });
  parts_.stats.receive_seconds += SecondsSince(begin);
  if (arrived) return arrived;
  if (!deadline_.Passed()) return std::nullopt;
  throw Error(ErrorCode::kDeadlineExceeded, peer().text() + ", " + stage + ": no chunk before the deadline");
}

void ChunkReceiver::KeepMessages(const std::string& stage) {
  parts_.publisher.link().TakeIn(manifest().size() + 1, stage);  // a message for each tensor, and one for the end
}

std::vector<RegionView> ChunkReceiver::Verified(ArrivedChunk& arrived, const Digest& expected) {
  if (parts_.failpoints.Hit("receive.chunk")) {
    arrived.views = arrived.memory->Corrupted(arrived.views);
    arrived.digest = arrived.memory->BeginDigest(arrived.views);
  }
  const auto begin = Clock::now();
  const Digest digest = arrived.digest();
  parts_.stats.verify_seconds += SecondsSince(begin);
  parts_.stats.bytes += schedule().chunks()[arrived.chunk].num_bytes;
  parts_.share.bytes += schedule().chunks()[arrived.chunk].num_bytes;
  CheckDigest(arrived.chunk, expected, digest);
  parts_.stats.regions += arrived.views.size();
  return arrived.views;
}

void ChunkReceiver::NoteRelayed(std::uint32_t chunk, const std::string& relay) {
  parts_.share.relayed_bytes += schedule().chunks()[chunk].num_bytes;
  std::vector<std::string>& relays = parts_.share.relays;
  if (relays.empty() || relays.back() != relay) relays.push_back(relay);
}

void ChunkReceiver::CheckDigest(std::uint32_t chunk, const Digest& expected, const Digest& got) const {
  if (expected == got) return;
  const Region& first = schedule().RegionsOf(schedule().chunks()[chunk]).front();
  throw Error(ErrorCode::kCorrupt, peer().text() + ": " + StageOf(chunk) + " (from '" +
                                       manifest().entry(first.tensor).spec.name + "' on): digest expected " +
                                       expected.ToHex() + ", got " + got.ToHex());
}

const AmaxRequest* ChunkReceiver::FindRequest(std::uint32_t tensor) const {
  const auto asked = std::ranges::lower_bound(parts_.amax_requests, tensor, {}, &AmaxRequest::tensor);
  return asked != parts_.amax_requests.end() && asked->tensor == tensor ? &*asked : nullptr;
}

void ChunkReceiver::CheckAmax(std::uint32_t tensor, std::span<const float> amax) const {
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

void ChunkReceiver::CheckTensorAmax(std::uint32_t tensor, float amax) const {
  if (!IsMagnitude(amax) && amax != kUnknownAmax) RefuseAmax(tensor, amax);
}

void ChunkReceiver::RefuseAmax(std::uint32_t tensor, float amax) const {
  Refuse("sent " + std::to_string(amax) + " as a magnitude of tensor " + std::to_string(tensor) +
         ", expected a finite one of at least 0");
}

std::string ChunkReceiver::StageOf(std::size_t chunk) const {
  return "chunk " + std::to_string(chunk + 1) + " of " + std::to_string(schedule().chunks().size()) + " of " +
         manifest().version().ToString() + " over " + parts_.publisher.channel_use().name;
}

void ChunkReceiver::Refuse(const std::string& what) const {
  throw Error(ErrorCode::kCorrupt, peer().text() + " " + what);
}

}  // namespace layercast
