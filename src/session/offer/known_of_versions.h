// Remembers what was computed of the versions on offer, as long as they are there: the digests of each schedule's
// chunks, and the magnitudes that receivers have asked for. Every rank of every engine asks for the same ones, and
// computing one takes as long as reading its bytes. Used by the digest worker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "src/base/digest/digest.h"
#include "src/base/hash/sha256.h"
#include "src/base/threads/worker_pool.h"
#include "src/session/link/device_bytes.h"
#include "src/session/link/offered_version.h"
#include "src/tensor/kernels/axis_amax.h"

namespace layercast {

// Resource; one thread only. Its memory is bounded: what it has no room for is computed again.
class KnownOfVersions {
 public:
  static constexpr std::size_t kMostSchedules = 256;     // of a version
  static constexpr std::size_t kMostValues = 16U << 20;  // of all: 64 MiB, the rows of a hundred layers of large models
  static constexpr std::size_t kValuesOfARequest = 32;   // what remembering one takes beside its values

  explicit KnownOfVersions(std::size_t most_values = kMostValues) : most_values_(most_values) {}

  // Those of the schedule's first chunks, as far as they are computed; to add more to. Valid until the next call.
  std::vector<Digest>& Digests(const std::shared_ptr<const OfferedVersion>& version, const Digest& schedule);
  std::vector<Hash>& Hashes(const std::shared_ptr<const OfferedVersion>& version, const Digest& schedule);
  // The magnitudes of an offered snapshot, which the request must fit. `device` is for a version that lies on one.
  std::vector<float> Amax(const std::shared_ptr<const OfferedVersion>& version, const AmaxRequest& request,
                          WorkerPool& pool, DeviceBytes* device);

  std::size_t versions() const { return versions_.size(); }
  std::size_t values() const;

 private:
  using Request = std::tuple<std::uint32_t, KeptAxes, Shape>;
  struct Known {
    std::weak_ptr<const OfferedVersion> version;
    std::map<Digest, std::vector<Digest>> digests;
    std::map<Digest, std::vector<Hash>> hashes;
    std::map<Request, std::vector<float>> amaxes;
    std::size_t values = 0;  // of amaxes
  };
  Known& Of(const std::shared_ptr<const OfferedVersion>& version);
  void MakeRoom(const Known& here, std::size_t values);

  const std::size_t most_values_;
  std::map<std::uint64_t, Known> versions_;  // by offer; the newest has the highest number
};

}  // namespace layercast
