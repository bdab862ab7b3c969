#include "src/session/link/offered_version.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace layercast {

OfferedVersion::OfferedVersion(Manifest manifest, Offer offer, bool borrowed, WorkCost cost, Provenance provenance,
                               DigestsBySchedule chunk_digests)
    : manifest_(std::move(manifest)),
      encoded_manifest_(manifest_.Encode()),
      offer_(std::move(offer)),
      borrowed_(borrowed),
      cost_(cost),
      provenance_(std::move(provenance)),
      chunk_digests_(std::move(chunk_digests)) {}

OfferedVersion::OfferedVersion(Manifest manifest, WalkFunction walk, bool layer_order, Provenance provenance)
    : manifest_(std::move(manifest)),
      encoded_manifest_(manifest_.Encode()),
      walk_(std::move(walk)),
      layer_order_(layer_order),
      provenance_(std::move(provenance)) {}

OfferedVersion::OfferedVersion(std::shared_ptr<RelayedChunks> relayed, std::uint64_t offer_id)
    : manifest_(kRelayedLineage, offer_id, {}),
      encoded_manifest_(manifest_.Encode()),
      offer_{.id = offer_id, .tensors = relayed->Tensors()},
      relayed_(std::move(relayed)) {}

void OfferedVersion::Count(VersionUse use, int by) {
  const std::lock_guard lock(mutex_);
  uses_[use] += by;
  changed_.notify_all();
}

int OfferedVersion::uses(VersionUse use) const {
  const std::lock_guard lock(mutex_);
  const auto count = uses_.find(use);
  return count == uses_.end() ? 0 : count->second;
}

void OfferedVersion::Retire() {
  const std::lock_guard lock(mutex_);
  if (!retired_) retired_ = Deadline::Clock::now();
  changed_.notify_all();
}

bool OfferedVersion::retired() const {
  const std::lock_guard lock(mutex_);
  return retired_.has_value();
}

void OfferedVersion::Expire() {
  const std::lock_guard lock(mutex_);
  expired_ = true;
}

bool OfferedVersion::expired() const {
  const std::lock_guard lock(mutex_);
  return expired_;
}

Deadline::Clock::duration OfferedVersion::RetiredFor() const {
  const std::lock_guard lock(mutex_);
  return retired_ ? Deadline::Clock::now() - *retired_ : Deadline::Clock::duration(0);
}

bool OfferedVersion::WaitReleased(Deadline deadline) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline.at(), [this] {
    return retired_ && std::ranges::all_of(uses_, [](const auto& use) { return use.second == 0; });
  });
}

std::vector<OfferingEnd*> CarriersOf(const OfferedVersion& version, std::span<OfferingEnd* const> ends) {
  const bool on_host = version.offer().device.kind == Device::Kind::kHost;
  std::vector<OfferingEnd*> carriers;
  std::ranges::copy_if(ends, std::back_inserter(carriers), [&](OfferingEnd* end) {
    if (!on_host) return end->reads_from(version.offer().device);
    return end->arena() == nullptr || !version.borrowed();
  });
  return carriers;
}

}  // namespace layercast
