// The chunks that a receiver has asked for, and those of them that have come whole. The publisher's counterpart is
// ReplyQueue. Part of FetchingBase.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "src/tensor/region_views.h"
#include "src/transport/channel/channel.h"
#include "src/transport/channel/channel_messages.h"
#include "src/transport/channel/offer_views.h"

namespace layercast {

struct RequestedChunk {
  std::uint64_t ticket = 0;
  std::span<std::byte> destination;  // exactly the chunk's bytes
  std::vector<RegionView> views;     // of the packed destination
};

// One thread only. A `Chunk` is a RequestedChunk with what the channel needs to keep track of its bytes. Its address
// stays the same until it is complete.
template <typename Chunk>
class RequestsUnderWay {
 public:
  struct Added {
    Chunk& chunk;
    std::vector<std::byte> message;  // the one that asks for the chunk
  };

  // Throws kInvalidArgument if more is under way than the protocol allows, the destination is too small, or the ticket
  // is under way already.
  Added Add(const ChunkRequest& request) {
    if (request.regions.size() > kMaxRegionsUnderWay - regions_ || chunks_.size() == kMaxRequestsUnderWay) {
      throw Error(ErrorCode::kInvalidArgument, "more requests or regions under way than the channel allows");
    }
    std::vector<RegionView> views = PackedViews(request.regions, request.destination);
    const std::size_t bytes = NumBytes(views);
    std::vector<std::byte> message =
        Encode(Request{request.ticket, request.offer_id, {request.regions.begin(), request.regions.end()}});
    if (message.size() > kMaxRequestBytes) throw Error(ErrorCode::kInvalidArgument, "too many regions in one request");
    const auto [added, is_new] = chunks_.try_emplace(request.ticket);
    if (!is_new) {
      throw Error(ErrorCode::kInvalidArgument, "ticket " + std::to_string(request.ticket) + " is under way already");
    }
    RequestedChunk& chunk = added->second;
    chunk = {request.ticket, request.destination.first(bytes), std::move(views)};
    regions_ += request.regions.size();
    return {added->second, std::move(message)};
  }

  // Null if no chunk with this ticket is under way.
  Chunk* Find(std::uint64_t ticket) {
    const auto found = chunks_.find(ticket);
    return found == chunks_.end() ? nullptr : &found->second;
  }
  std::size_t size() const { return chunks_.size(); }
  bool empty() const { return chunks_.empty(); }

  template <typename Visit>
  void ForEach(const Visit& visit) {
    for (auto& [ticket, chunk] : chunks_) visit(chunk);
  }

  // To be called when all bytes of the chunk have come. It is then no longer under way, and waits for TakeDone.
  void Complete(Chunk& chunk) {
    const std::uint64_t ticket = chunk.ticket;
    regions_ -= chunk.views.size();
    done_.push_back({ticket, std::move(chunk.views)});
    chunks_.erase(ticket);
  }
  bool has_done() const { return !done_.empty(); }
  // The chunk that was completed first; only if has_done().
  ChunkCompletion TakeDone() {
    ChunkCompletion completion = std::move(done_.front());
    done_.pop_front();
    return completion;
  }

  void Clear() {
    chunks_.clear();
    done_.clear();
    regions_ = 0;
  }

 private:
  std::map<std::uint64_t, Chunk> chunks_;  // by ticket
  std::size_t regions_ = 0;                // of all chunks under way
  std::deque<ChunkCompletion> done_;
};

}  // namespace layercast
