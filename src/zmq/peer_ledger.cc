#include "src/zmq/peer_ledger.h"

#include <utility>

namespace layercast {

bool PeerLedger::NoteRefused(const std::string& routing_id) {
  const std::lock_guard lock(mutex_);
  Peer& peer = peers_[routing_id];
  peer.last_refused = Deadline::Clock::now();
  return ++peer.refused == kMostRefused;
}

bool PeerLedger::Bar(const std::string& routing_id) {
  const std::lock_guard lock(mutex_);
  Peer& peer = peers_[routing_id];
  peer.last_refused = Deadline::Clock::now();
  return std::exchange(peer.refused, kMostRefused) < kMostRefused;
}

bool PeerLedger::IsBarred(const std::string& routing_id) const {
  const std::lock_guard lock(mutex_);
  const auto peer = peers_.find(routing_id);
  return peer != peers_.end() && peer->second.refused >= kMostRefused;
}

std::optional<zmq::message_t> PeerLedger::Charge(const std::string& routing_id, std::vector<std::byte> bytes) {
  void* const data = bytes.data();
  const std::size_t size = bytes.size();
  if (size > longest_message_) return std::nullopt;
  {
    const std::lock_guard lock(mutex_);
    Peer& peer = peers_[routing_id];
    if (peer.untaken > kMostUntaken) return std::nullopt;
    peer.untaken += size;
    parcels_.emplace(data, Parcel{std::move(bytes), routing_id});
  }
  return std::make_optional<zmq::message_t>(data, size, Return, this);
}

void PeerLedger::Return(void* bytes, void* ledger) {
  auto& self = *static_cast<PeerLedger*>(ledger);
  std::unordered_map<const void*, Parcel>::node_type taken;  // destroyed after the lock is gone
  const std::lock_guard lock(self.mutex_);
  taken = self.parcels_.extract(bytes);
  self.peers_.at(taken.mapped().routing_id).untaken -= taken.mapped().bytes.size();
}

void PeerLedger::Sweep(std::chrono::milliseconds memory) {
  const auto now = Deadline::Clock::now();
  const std::lock_guard lock(mutex_);
  std::erase_if(peers_, [&](const auto& one) {
    const Peer& peer = one.second;
    return peer.untaken == 0 && (peer.refused == 0 || now - peer.last_refused > memory);
  });
}

}  // namespace layercast
