// Remembers the magnitudes that receivers have asked for: every rank of every engine asks for the same ones, and
// computing one takes as long as reading its tensor. Used by the digest worker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "src/base/threads/worker_pool.h"
#include "src/session/link/device_bytes.h"
#include "src/session/link/offered_version.h"
#include "src/tensor/kernels/axis_amax.h"

namespace layercast {

// Resource; one thread only. Its memory is bounded: what it has no room for is computed again.
class KnownAmax {
 public:
  // The magnitudes of an offered snapshot, which the request must fit. `device` is for a version that lies on one.
  std::vector<float> Of(const OfferedVersion& version, const AmaxRequest& request, WorkerPool& pool,
                        DeviceBytes* device);

 private:
  using Request = std::tuple<std::uint32_t, KeptAxes, Shape>;
  void MakeRoom(std::size_t values);

  std::map<std::uint64_t, std::map<Request, std::vector<float>>> offers_;  // the newest has the highest number
  std::size_t values_ = 0;                                                 // how many all of them have
};

}  // namespace layercast
