#include "src/net/limits/peer_ledger.h"

#include <algorithm>
#include <utility>

namespace layercast {

std::optional<PeerConnection> PeerLedger::NoteRefused(const std::string& routing_id, const PeerConnection& over) {
  const std::lock_guard lock(mutex_);
  Peer& peer = peers_[routing_id];
  peer.last_refused = Deadline::Clock::now();
  if (peer.refused_over == PeerConnection()) peer.refused_over = over;
  if (++peer.refused != kMostRefused) return std::nullopt;
  return peer.refused_over;
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
    const std::uint64_t longest = std::max<std::uint64_t>(size, peer.untaken.empty() ? 0 : *peer.untaken.rbegin());
    if (peer.untaken_bytes + size - longest > kMostUntaken) return std::nullopt;
    peer.untaken.insert(size);
    peer.untaken_bytes += size;
    parcels_.emplace(data, Parcel{std::move(bytes), routing_id});
  }
  return std::make_optional<zmq::message_t>(data, size, Return, this);
}

void PeerLedger::Return(void* bytes, void* ledger) {
  auto& self = *static_cast<PeerLedger*>(ledger);
  std::unordered_map<const void*, Parcel>::node_type taken;  // destroyed after the lock is gone
  const std::lock_guard lock(self.mutex_);
  taken = self.parcels_.extract(bytes);
  const std::uint64_t size = taken.mapped().bytes.size();
  Peer& peer = self.peers_.at(taken.mapped().routing_id);
  peer.untaken.erase(peer.untaken.find(size));
  peer.untaken_bytes -= size;
}

void PeerLedger::Sweep(std::chrono::milliseconds memory) {
  const auto now = Deadline::Clock::now();
  const std::lock_guard lock(mutex_);
  std::erase_if(peers_, [&](const auto& one) {
    const Peer& peer = one.second;
    return peer.untaken.empty() && (peer.refused == 0 || now - peer.last_refused > memory);
  });
}

}  // namespace layercast
