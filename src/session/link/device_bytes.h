// What a publisher's sessions need to do with a version whose bytes lie on a device. The trainer's side implements it
// (trainer_side/device_tensors.h).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "layercast/tensor.h"
#include "layercast/version.h"
#include "src/tensor/kernels/axis_amax.h"
#include "src/tensor/region.h"

namespace layercast {

// Resource; thread-safe. A call returns when its work is done.
class DeviceBytes {
 public:
  virtual ~DeviceBytes() = default;
  virtual void ToHost(const Device& device, const std::byte* from, std::size_t bytes, std::byte* to) = 0;
  // What the function AmaxOver gives on the host, for a tensor that lies on the device at `data`.
  virtual std::vector<float> AmaxOver(const Device& device, const TensorSpec& spec, const std::byte* data,
                                      KeptAxes kept) = 0;
  // The digest of each chunk: of its views' bytes, one after the other.
  virtual std::vector<Digest> DigestsOf(const Device& device, std::span<const std::vector<RegionView>> chunks) = 0;
};

}  // namespace layercast
