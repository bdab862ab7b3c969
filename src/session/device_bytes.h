// What a publisher's sessions need of a version whose bytes lie on a device: the trainer's side knows how
// (trainer_side/device_tensors.h).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "layercast/tensor.h"
#include "layercast/version.h"
#include "src/tensor/axis_amax.h"
#include "src/tensor/region.h"

namespace layercast {

// Thread-safe. Everything is done when a call returns.
class DeviceBytes {
 public:
  virtual ~DeviceBytes() = default;
  virtual void ToHost(const Device& device, const std::byte* from, std::size_t bytes, std::byte* to) = 0;
  // As AmaxOver does on the host, of a tensor that lies at `data`.
  virtual std::vector<float> AmaxOver(const Device& device, const TensorSpec& spec, const std::byte* data,
                                      KeptAxes kept) = 0;
  // Of each chunk: its views' bytes, one after the other.
  virtual std::vector<Digest> DigestsOf(const Device& device, std::span<const std::vector<RegionView>> chunks) = 0;
};

}  // namespace layercast
