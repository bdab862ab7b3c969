#include "src/session/fetch/relay_fetch.h"

#include <exception>
#include <vector>

#include "src/base/log.h"

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

RelayFetch::RelayFetch(const RelayPlace& place, const ChunkFetch& own, std::uint32_t first)
    : place_(place),
      schedule_(own.schedule()),
      packed_(Packed(schedule_)),
      session_(place.endpoint, own.peer()),
      next_(first) {
  const std::string stage = "following a relay";
  // A relay that answers pings and nothing else does not count as silent. Without this bound, opening a session with it
  // could take as long as the whole reload may.
  const Deadline opened = own.deadline().AtMost(session_.options().peer_timeout);
  session_.Open(kRelayedLineage, place.offer, opened);
  session_.Ask(schedule_, {});
  const wire::Message answer = session_.link().Expect(opened, stage);
  if (!std::holds_alternative<wire::Subscribed>(answer)) session_.link().RefuseAnswer(stage, "'subscribed'", answer);
  ChunkWindow::Memory memory = own.memory();
  memory.copies_out = true;
  chunks_.emplace(session_, packed_, memory, own.stats(), own.deadline());
}

std::optional<ArrivedChunk> RelayFetch::Poll(const std::string& stage, std::chrono::milliseconds step) {
  if (chunks_->nothing_under_way()) {  // until the relay has more
    if (const std::optional<wire::Message> message = chunks_->PollMessage(stage, step)) Take(*message, stage);
    return std::nullopt;
  }
  std::optional<ArrivedChunk> arrived = chunks_->Poll(stage, step);
  if (arrived) {
    const Chunk& chunk = schedule_.chunks()[arrived->chunk];
    bytes_ += chunk.num_bytes;
    arrived->views = ViewsAt(arrived->views.front().base, schedule_.RegionsOf(chunk));
  }
  return arrived;
}

void RelayFetch::LookAtLink(const std::string& stage) {
  while (const std::optional<wire::Message> message = chunks_->MessageThatCame(stage)) Take(*message, stage);
}

void RelayFetch::TellTaken() noexcept {
  const auto elapsed = std::chrono::duration_cast<std::chrono::microseconds>(Deadline::Clock::now() - begin_);
  try {
    session_.link().Send(wire::Progress{.bytes = bytes_, .elapsed_us = static_cast<std::uint64_t>(elapsed.count())});
  } catch (const std::exception& error) {
    log::debug("{}", error.what());
  }
}

void RelayFetch::Take(const wire::Message& message, const std::string& stage) {
  const auto* ready = std::get_if<wire::ChunksReady>(&message);
  if (ready == nullptr) session_.link().RefuseAnswer(stage, "'chunks_ready'", message);
  if (ready->chunks > packed_.chunks().size()) {
    session_.Refuse("has " + std::to_string(ready->chunks) + " chunks, expected at most " +
                    std::to_string(packed_.chunks().size()));
  }
  for (; next_ < ready->chunks; ++next_) chunks_->Want(place_.offer, next_);
}

}  // namespace layercast
