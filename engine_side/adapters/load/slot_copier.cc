#include "engine_side/adapters/load/slot_copier.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "engine_side/reload/layout/served_digest.h"
#include "src/base/digest/digest.h"

namespace layercast {
namespace {

constexpr std::size_t kCopyBlockBytes = std::size_t{4} << 20;

bool IsOnHost(const AdapterSlots& slots) { return slots.device().kind == Device::Kind::kHost; }

}  // namespace

SlotCopier::SlotCopier(std::shared_ptr<ReloadStream> stream) : stream_(std::move(stream)) {
  if (stream_ == nullptr) return;
  up_.emplace(*stream_, kCopyBlockBytes).Open();
  down_.emplace(*stream_, kCopyBlockBytes).Open();
}

void SlotCopier::Copy(const Place& from, const Place& to) {
  to.slots.Clear(to.slot);
  for (std::size_t term = 0; term < from.slots.terms().size(); ++term) {
    if (!from.slots.Has(from.slot, term)) continue;
    const auto source = from.slots.Factors(term, from.slot), target = to.slots.Factors(term, to.slot);
    for (std::size_t i = 0; i < source.size(); ++i) {
      const auto put = [&, at = target[i].data()](std::span<const std::byte> bytes) mutable {
        Write(to.slots, bytes, at);
        at += bytes.size();
      };
      Read(from.slots, source[i], put);
    }
  }
  if (stream_ != nullptr) stream_->Wait(stream_->Record());
  std::ranges::copy(from.slots.Numbers(from.slot), to.slots.Numbers(to.slot).begin());
}

Digest SlotCopier::DigestOf(const Place& place) {
  const std::span<const AdapterTerm> terms = place.slots.terms();
  std::vector<std::string> names;
  std::vector<Digest> digests;
  for (std::size_t term = 0; term < terms.size(); ++term) {
    if (!place.slots.Has(place.slot, term)) continue;
    names.insert(names.end(), {terms[term].AName(), terms[term].BName()});
    for (const std::span<const std::byte> factor : place.slots.Factors(term, place.slot)) {
      Digester digester;
      Read(place.slots, factor, [&](std::span<const std::byte> bytes) { digester.Update(bytes); });
      digests.push_back(digester.Finish());
    }
  }
  std::vector<NamedDigest> named;
  for (std::size_t i = 0; i < names.size(); ++i) named.push_back({names[i], digests[i]});
  return SlotDigest(CombineDigests(std::move(named)), place.slots.Numbers(place.slot));
}

void SlotCopier::Read(const AdapterSlots& of, std::span<const std::byte> bytes, const Visit& visit) {
  if (IsOnHost(of)) return visit(bytes);
  try {
    down_->Read(bytes.data(), bytes.size(), visit);
    down_->Finish();
  } catch (...) {
    down_->Drop();
    throw;
  }
}

void SlotCopier::Write(const AdapterSlots& of, std::span<const std::byte> bytes, std::byte* to) {
  if (IsOnHost(of)) {
    std::memcpy(to, bytes.data(), bytes.size());
    return;
  }
  while (!bytes.empty()) {
    const std::size_t count = std::min(bytes.size(), up_->block_bytes());
    const UploadRing::Slot block = up_->Take(count);
    std::memcpy(block.pinned, bytes.data(), count);
    stream_->Copy(block.pinned, to, count);
    bytes = bytes.subspan(count);
    to += count;
  }
}

}  // namespace layercast
