#include "src/session/fetch/chunk_fetch.h"

#include "layercast/error.h"
#include "src/session/chunks/chunk_digests.h"
#include "src/session/link/naming_peer.h"
#include "src/session/signing/chunk_hashes.h"
#include "src/trace/trace_recorder.h"

namespace layercast {
namespace {

using Clock = Deadline::Clock;

constexpr std::chrono::milliseconds kReasonTime{500};

double Seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

std::string NameOfChunk(std::uint32_t chunk) { return "chunk " + std::to_string(chunk); }

// Regions of a tensor as those of an offer's one run of bytes, in which it begins at `offset`.
std::vector<Region> InOffer(std::span<const Region> planned, std::uint64_t offset) {
  std::vector<Region> regions(planned.begin(), planned.end());
  for (Region& region : regions) {
    region.tensor = 0;
    region.offset += offset;
  }
  return regions;
}

}  // namespace

ChunkFetch::ChunkFetch(PublisherSession& peer, const Schedule& schedule, const ChunkWindow::Memory& memory,
                       FetchStats& stats, Deadline deadline)
    : peer_(peer),
      schedule_(schedule),
      stats_(stats),
      deadline_(deadline),
      window_(peer.channel(), memory),
      receive_lane_(LaneOf(peer.options().trace, "receive", TraceKind::kStage)),
      verify_lane_(LaneOf(peer.options().trace, "verify", TraceKind::kStage)),
      chunks_lane_(LaneOf(peer.options().trace, "chunks", TraceKind::kChunks)) {}

// Makes a call on the channel; its errors name the peer. If the publisher has let go of what is read, it says why over
// the control link, perhaps a moment later, and that is the better error.
template <typename Call>
auto ChunkFetch::OverChannel(const Call& call) {
  try {
    return NamingPeer(peer_.peer(), call);
  } catch (const Error& error) {
    const Deadline soon = Deadline::After(kReasonTime);
    const std::string stage = "reading what it offers no more";
    while (error.code() == ErrorCode::kNotFound && peer_.link().Receive(soon, stage)) {
    }
    throw;
  }
}

void ChunkFetch::Request() {
  for (; !wanted_.empty() && window_.HasRoom(); wanted_.pop_front()) Submit(wanted_.front());
}

void ChunkFetch::Submit(const Wanted& wanted) {
  const Chunk& chunk = schedule_.chunks()[wanted.chunk];
  const std::span<const Region> planned = schedule_.RegionsOf(chunk);
  OverChannel([&] {
    if (peer_.mode() == PublishMode::kStream) {
      window_.Submit(wanted.chunk, wanted.offer, InOffer(planned, wanted.offset), chunk.num_bytes);
    } else {
      window_.Submit(wanted.chunk, wanted.offer, planned, chunk.num_bytes);
    }
  });
  if (chunks_lane_ != nullptr) asked_at_[wanted.chunk] = Clock::now();
}

std::optional<ArrivedChunk> ChunkFetch::Poll(const std::string& stage, std::chrono::milliseconds step) {
  const auto begin = Clock::now();
  std::optional<ArrivedChunk> arrived = OverChannel([&] { return window_.Poll(deadline_.AtMost(step)); });
  NoteReceiving(begin, arrived && receive_lane_ != nullptr ? NameOfChunk(arrived->chunk) : std::string());
  if (arrived) NoteArrived(arrived->chunk);
  if (arrived) return arrived;
  if (!deadline_.Passed()) return std::nullopt;
  throw Error(ErrorCode::kDeadlineExceeded, peer_.peer().text() + ", " + stage + ": no chunk before the deadline");
}

void ChunkFetch::NoteReceiving(Clock::time_point begin, const std::string& what) {
  const Clock::time_point now = Clock::now();
  stats_.receive_seconds += Seconds(now - begin);
  if (receive_lane_ != nullptr) receive_lane_->Add(begin, now, what);
}

void ChunkFetch::NoteArrived(std::uint32_t chunk) {
  const auto asked = asked_at_.find(chunk);
  if (asked == asked_at_.end()) return;
  chunks_lane_->Add(asked->second, Clock::now(), NameOfChunk(chunk));
  asked_at_.erase(asked);
}

std::vector<RegionView> ChunkFetch::Verified(ArrivedChunk& arrived, const Digest& expected, const Hash* signed_hash) {
  if (peer_.failpoints().Hit("receive.chunk")) {
    arrived.views = arrived.memory->Corrupted(arrived.views);
    arrived.digest = arrived.memory->BeginDigest(arrived.views);
  }
  const auto begin = Clock::now();
  const Digest digest = arrived.digest();
  const Hash hash = signed_hash == nullptr ? Hash{} : HashOfViews(arrived.views, memory().pool);
  const Clock::time_point now = Clock::now();
  stats_.verify_seconds += Seconds(now - begin);
  if (verify_lane_ != nullptr) verify_lane_->Add(begin, now, NameOfChunk(arrived.chunk));
  stats_.bytes += arrived.moved;
  peer_.share().bytes += arrived.moved;
  CheckChunkDigest(expected, digest, [&] { return NameOf(arrived.chunk); });
  if (signed_hash != nullptr) CheckChunkHash(*signed_hash, hash, [&] { return NameOf(arrived.chunk); });
  stats_.regions += arrived.views.size();
  return arrived.views;
}

std::string ChunkFetch::NameOf(std::uint32_t chunk) const {
  const Region& first = schedule_.RegionsOf(schedule_.chunks()[chunk]).front();
  return peer_.peer().text() + ": " + StageOf(chunk) + " (from '" + manifest().entry(first.tensor).spec.name + "' on)";
}

void ChunkFetch::ExpectOffered(std::uint64_t offer) {
  OverChannel([&] { window_.ExpectOffered(offer); });
}

std::optional<wire::Message> ChunkFetch::PollMessage(const std::string& stage, std::chrono::milliseconds step) {
  const auto begin = Clock::now();
  std::optional<wire::Message> message = peer_.link().Receive(deadline_.AtMost(step), stage);
  NoteReceiving(begin, message && receive_lane_ != nullptr ? std::string(wire::MessageName(*message)) : std::string());
  if (!message && deadline_.Passed()) {
    throw Error(ErrorCode::kDeadlineExceeded, peer_.peer().text() + ", " + stage + ": no answer before the deadline");
  }
  return message;
}

std::string ChunkFetch::StageOf(std::size_t chunk) const {
  return "chunk " + std::to_string(chunk + 1) + " of " + std::to_string(schedule_.chunks().size()) + " of " +
         manifest().version().ToString() + " over " + peer_.channel_use().name;
}

}  // namespace layercast
