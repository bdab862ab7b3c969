#include "engine_side/server/adapters/adapter_mover.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "layercast/error.h"
#include "src/base/utf8.h"

namespace layercast {
namespace {

constexpr std::chrono::milliseconds kMoveTimeout{60'000};

}  // namespace

AdapterFill AdapterMover::TakeSlot(const std::string& name, AdapterRegistry::For purpose, Deadline deadline) {
  while (true) {
    AdapterRegistry::Room room = registry_.MakeRoom(name, purpose, deadline);
    if (auto* const slot = std::get_if<AdapterFill>(&room)) return std::move(*slot);
    auto& move = std::get<AdapterMove>(room);
    try {
      Copy(move);
    } catch (const Error& error) {
      throw Error(error.code(), "adapter " + Quote(name) + ": no slot is free for it: " + error.what());
    }
    if (AdapterFill slot = registry_.Demoted(std::move(move), name, purpose)) return slot;
  }
}

AdapterLease AdapterMover::Promote(const std::string& name, Deadline deadline) {
  if (AdapterLease there = registry_.InSlot(name)) return there;
  std::optional<AdapterMove> move =
      registry_.MoveInto(TakeSlot(name, AdapterRegistry::For::kPromotion, deadline), name);
  if (!move) return registry_.Lease(name);  // loaded meanwhile
  Copy(*move);
  return registry_.Promoted(std::move(*move));
}

// Each rank compares what it has copied with the digest of the adapter's load.
void AdapterMover::Copy(const AdapterMove& move) {
  const std::uint64_t generation = ranks_.generation();
  const Json params = {{"from", move.from()}, {"to", move.to()}, {"digests", move.adapter().about.at("digests")}};
  std::optional<Error> first;
  for (const RankAnswer& answer : ranks_.Try("move_adapter", params, Deadline::After(kMoveTimeout))) {
    if (answer.error && !first) first = answer.error;
  }
  if (!first) return;
  // A rank that has not answered may write into the place when another adapter has it.
  if (first->code() == ErrorCode::kDeadlineExceeded) {
    ranks_.Restart(generation);
  } else {
    ranks_.RestartIfLost();
  }
  const char* const where =
      move.to() < registry_.size() ? " could not be brought into slot " : " could not leave slot ";
  throw Error(first->code(), "adapter " + Quote(move.adapter().name) + where +
                                 std::to_string(std::min(move.from(), move.to())) + ": " + first->what());
}

}  // namespace layercast
