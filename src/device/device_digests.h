// Digests of tensors that lie on a device. The device computes the digests of their leaves; the host combines these,
// which are a few thousandths of the bytes. Used by publishers, committers and readers of captured buffers.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "layercast/memory.h"
#include "layercast/version.h"
#include "src/base/digest/tensor_digests.h"
#include "src/device/device_stream.h"
#include "src/device/download.h"
#include "src/device/gathered_bytes.h"
#include "src/tensor/region.h"

namespace layercast {

// Resource; one thread only. What it borrows must outlive it.
class DeviceDigests final : public TensorDigests {
 public:
  // `memory` is device memory, for leaves and for packed bytes.
  DeviceDigests(DeviceStream& stream, Download& download, MemoryResource& memory)
      : stream_(stream), download_(download), memory_(memory) {}
  DeviceDigests(const DeviceDigests&) = delete;
  DeviceDigests& operator=(const DeviceDigests&) = delete;
  ~DeviceDigests() override { download_.Drop(); }

  void Add(std::span<const std::span<const std::byte>> tensors, std::span<Digest> digests) override;
  // Adds a tensor of contiguous bytes.
  void Add(const std::byte* from, std::size_t bytes, Digest& digest);
  // Adds a tensor that consists of the views' bytes, one after the other.
  void Add(std::span<const RegionView> views, Digest& digest);
  // Adds a tensor that is not one contiguous run. Its bytes are gathered during this call.
  void Add(const GatheredBytes& from, Digest& digest);
  void Finish() override { download_.Finish(); }

 private:
  // Computes the leaf digests of a part of a tensor, and brings them to the host. The last part's complete its digest.
  void AddPart(const std::byte* from, std::size_t bytes, std::size_t tensor_bytes, Digest& digest);

  DeviceStream& stream_;
  Download& download_;
  MemoryResource& memory_;
  Buffer leaves_;                // on the device, of one part: the stream keeps its uses apart
  Buffer packed_;                // packed bytes, likewise
  std::vector<Digest> arrived_;  // on the host: leaves of the tensor that is arriving
  std::size_t arrived_bytes_ = 0;
};

}  // namespace layercast
