#include "src/session/offer/known_of_versions.h"

#include <algorithm>
#include <numeric>

namespace layercast {

std::vector<Digest>& KnownOfVersions::Digests(const std::shared_ptr<const OfferedVersion>& version,
                                              const Digest& schedule) {
  Known& known = Of(version);
  if (const auto found = known.digests.find(schedule); found != known.digests.end()) return found->second;
  if (known.digests.size() >= kMostSchedules) known.digests.erase(known.digests.begin());
  const auto before = version->chunk_digests().find(schedule);
  return known.digests[schedule] = before == version->chunk_digests().end() ? std::vector<Digest>() : before->second;
}

std::vector<Hash>& KnownOfVersions::Hashes(const std::shared_ptr<const OfferedVersion>& version,
                                           const Digest& schedule) {
  std::map<Digest, std::vector<Hash>>& hashes = Of(version).hashes;
  if (!hashes.contains(schedule) && hashes.size() >= kMostSchedules) hashes.erase(hashes.begin());
  return hashes[schedule];
}

std::vector<float> KnownOfVersions::Amax(const std::shared_ptr<const OfferedVersion>& version,
                                         const AmaxRequest& request, WorkerPool& pool, DeviceBytes* device) {
  Known& known = Of(version);
  const Request key{request.tensor, request.kept, request.read_as};
  if (const auto found = known.amaxes.find(key); found != known.amaxes.end()) return found->second;
  const TensorSpec spec = AsRead(version->manifest().entry(request.tensor).spec, request);
  const Device& where = version->offer().device;
  const std::byte* const bytes = version->offer().tensors[request.tensor].data;
  std::vector<float> amax = where.kind == Device::Kind::kHost ? AmaxOver(spec, bytes, request.kept, pool)
                                                              : device->AmaxOver(where, spec, bytes, request.kept);
  const std::size_t values = amax.size() + kValuesOfARequest;
  MakeRoom(known, values);
  if (this->values() + values <= most_values_) {
    known.values += values;
    known.amaxes.emplace(key, amax);
  }
  return amax;
}

std::size_t KnownOfVersions::values() const {
  return std::accumulate(versions_.begin(), versions_.end(), std::size_t{0},
                         [](std::size_t sum, const auto& version) { return sum + version.second.values; });
}

// Forgets the versions that are gone: nobody can ask for them any more.
KnownOfVersions::Known& KnownOfVersions::Of(const std::shared_ptr<const OfferedVersion>& version) {
  std::erase_if(versions_, [](const auto& known) { return known.second.version.expired(); });
  Known& known = versions_[version->offer().id];
  known.version = version;
  return known;
}

// Forgets the magnitudes of the oldest versions but `here`, which receivers are done with first.
void KnownOfVersions::MakeRoom(const Known& here, std::size_t values) {
  for (auto& [offer, known] : versions_) {
    if (this->values() + values <= most_values_) return;
    if (&known == &here) continue;
    known.amaxes.clear();
    known.values = 0;
  }
}

}  // namespace layercast
