#include "src/session/fetch/relay_source.h"

#include <utility>
#include <vector>

#include "layercast/error.h"

namespace layercast {
namespace {

Schedule Packed(const Schedule& schedule) {
  Schedule packed;
  for (std::uint32_t i = 0; i < schedule.chunks().size(); ++i) {
    packed.Add(std::vector<Region>{
        {.tensor = i, .offset = 0, .row_bytes = schedule.chunks()[i].num_bytes, .rows = 1, .stride = 0}});
  }
  return packed;
}

// Relays' channels are not measured: that would delay the first byte, once for each step of the tree.
FetchOptions Unmeasured(FetchOptions options) {
  options.measure = false;
  return options;
}

// The views of a chunk's regions, which lie packed at `at`.
std::vector<RegionView> ViewsAt(const std::byte* at, std::span<const Region> regions) {
  std::vector<RegionView> views;
  for (const Region& region : regions) {
    views.push_back(PackedAt(at, static_cast<std::size_t>(region.row_bytes), static_cast<std::size_t>(region.rows)));
    at += region.num_bytes();
  }
  return views;
}

}  // namespace

RelaySource::RelaySource(const RelayPlace& place, const ChunkReceiver& receiver, const FetchOptions& options,
                         const ReceiverIdentity& self)
    : place_(place),
      schedule_(receiver.schedule()),
      packed_(Packed(receiver.schedule())),
      session_({"relay", place.endpoint}, Unmeasured(options)) {
  const std::string stage = "following a relay";
  // A relay that answers pings and nothing else does not count as silent. Without this bound, opening a session with it
  // could take as long as the whole reload may.
  const Deadline opened = receiver.deadline().AtMost(options.peer_timeout);
  session_.Open(self, kRelayedLineage, place.offer, opened);
  session_.Ask(schedule_, {});
  const wire::Message answer = session_.link().Expect(opened, stage);
  if (!std::holds_alternative<wire::Subscribed>(answer)) session_.link().RefuseAnswer(stage, "'subscribed'", answer);
  const ChunkReceiverParts& of = receiver.parts();
  ChunkWindow::Memory memory = of.memory;
  memory.copies_out = true;
  chunks_.emplace(ChunkReceiverParts{.publisher = session_,
                                     .schedule = packed_,
                                     .amax_requests = {},
                                     .first_tensor = of.first_tensor,
                                     .sink = of.sink,
                                     .stats = of.stats,
                                     .share = of.share,
                                     .failpoints = of.failpoints,
                                     .memory = memory},
                  receiver.deadline());
}

void RelaySource::Submit(std::uint32_t chunk) {
  const Chunk& wanted = packed_.chunks()[chunk];
  chunks_->Submit(chunk, place_.offer, packed_.RegionsOf(wanted), wanted.num_bytes);
}

std::optional<ArrivedChunk> RelaySource::Poll(const std::string& stage, std::chrono::milliseconds step) {
  if (chunks_->window().empty()) {  // nothing is under way until the relay has more
    if (const std::optional<wire::Message> message = chunks_->PollMessage(stage, step)) Take(*message, stage);
    return std::nullopt;
  }
  std::optional<ArrivedChunk> arrived = chunks_->PollChunk(stage, step);
  if (arrived) {
    const Chunk& chunk = schedule_.chunks()[arrived->chunk];
    arrived->views = ViewsAt(arrived->views.front().base, schedule_.RegionsOf(chunk));
  }
  return arrived;
}

void RelaySource::LookAtLink(const std::string& stage) {
  const Deadline now(Deadline::Clock::now());
  while (const std::optional<wire::Message> message = session_.link().Receive(now, stage)) Take(*message, stage);
}

void RelaySource::Take(const wire::Message& message, const std::string& stage) {
  const auto* ready = std::get_if<wire::ChunksReady>(&message);
  if (ready == nullptr) session_.link().RefuseAnswer(stage, "'chunks_ready'", message);
  if (ready->chunks > packed_.chunks().size()) {
    chunks_->Refuse("has " + std::to_string(ready->chunks) + " chunks, expected at most " +
                    std::to_string(packed_.chunks().size()));
  }
  ready_ = ready->chunks;
}

}  // namespace layercast
