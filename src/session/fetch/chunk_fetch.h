// The loop of every fetch: chunks of one schedule are asked of one peer while there is room, waited for, checked
// against their digests, and let go. Used by the walks over snapshots and over streams, and for what a relay has.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/base/deadline.h"
#include "src/session/chunks/chunk_window.h"
#include "src/session/fetch/fetch.h"
#include "src/session/fetch/publisher_session.h"
#include "src/trace/trace_lane.h"
#include "src/wire/schedule.h"

namespace layercast {

// Resource; one thread only. The channel's end is closed before it goes.
class ChunkFetch {
 public:
  // `peer` and `schedule`, which it was asked for, outlive the fetch, and so do `stats`, to which is added what comes.
  ChunkFetch(PublisherSession& peer, const Schedule& schedule, const ChunkWindow::Memory& memory, FetchStats& stats,
             Deadline deadline);

  PublisherSession& peer() { return peer_; }
  const PublisherSession& peer() const { return peer_; }
  const Manifest& manifest() const { return peer_.manifest(); }
  const Schedule& schedule() const { return schedule_; }
  const ChunkWindow::Memory& memory() const { return window_.memory(); }
  FetchStats& stats() const { return stats_; }
  Deadline deadline() const { return deadline_; }
  bool nothing_under_way() const { return window_.empty(); }
  // The channel hands out views of the publisher's memory.
  bool attaches() const { return peer_.channel().attaches(); }
  // The chunk that is asked for next. There must be one.
  std::uint32_t next_wanted() const { return wanted_.front().chunk; }

  // How long one poll of a channel or a link may take before the others are polled.
  static constexpr std::chrono::milliseconds kPollStep{100};

  // Says that the chunk, which lies in `offer`, is to be asked for after those that are wanted already. Of a stream,
  // its tensor begins at `offset` of the offer.
  void Want(std::uint64_t offer, std::uint32_t chunk, std::uint64_t offset = 0) {
    wanted_.push_back({offer, chunk, offset});
  }
  // Asks for as many of the chunks that are wanted as there is room for.
  void Request();
  // Waits no longer than `step` for a chunk. On nullopt, look at the links before the next call.
  std::optional<ArrivedChunk> Poll(const std::string& stage, std::chrono::milliseconds step = kPollStep);
  // The chunk's views, after they were checked against its digest, and against the hash that its publisher has signed,
  // if there is one. Valid until the next call.
  std::vector<RegionView> Verified(ArrivedChunk& arrived, const Digest& expected, const Hash* signed_hash = nullptr);
  // Says that the chunk has been consumed.
  void Done(std::uint32_t chunk) { window_.Done(chunk); }
  // Throws unless views of this offer still show its bytes (ChunkWindow::ExpectOffered).
  void ExpectOffered(std::uint64_t offer);

  // The next message of the control link, if one comes within `step`; otherwise nullopt. The wait counts as receiving.
  std::optional<wire::Message> PollMessage(const std::string& stage, std::chrono::milliseconds step = kPollStep);
  // A message that has come already; does not wait. Looks at the link's state as PollMessage does.
  std::optional<wire::Message> MessageThatCame(const std::string& stage) {
    return peer_.link().Receive(Deadline(Deadline::Clock::now()), stage);
  }

  // "chunk 3 of 17 of run-17@42 over shm"
  std::string StageOf(std::size_t chunk) const;

 private:
  struct Wanted {
    std::uint64_t offer = 0;
    std::uint32_t chunk = 0;
    std::uint64_t offset = 0;
  };

  void Submit(const Wanted& wanted);
  // Adds the time since `begin` to the seconds of receiving, in which that came; empty: nothing did.
  void NoteReceiving(Deadline::Clock::time_point begin, const std::string& what);
  void NoteArrived(std::uint32_t chunk);
  template <typename Call>
  auto OverChannel(const Call& call);
  std::string NameOf(std::uint32_t chunk) const;

  PublisherSession& peer_;
  const Schedule& schedule_;
  FetchStats& stats_;
  const Deadline deadline_;
  ChunkWindow window_;
  std::deque<Wanted> wanted_;  // and not asked for yet
  // Null, unless somebody wants a timeline.
  TraceLane* const receive_lane_;
  TraceLane* const verify_lane_;
  TraceLane* const chunks_lane_;
  std::map<std::uint32_t, TraceTime> asked_at_;  // of chunks under way, if there is chunks_lane_
};

}  // namespace layercast
