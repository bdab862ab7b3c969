// Digests of tensors that lie on a device, which makes their leaves; the host puts those together, a few thousandths of
// the bytes.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "layercast/memory.h"
#include "layercast/version.h"
#include "src/device/device_stream.h"
#include "src/device/download.h"
#include "src/device/gathered_bytes.h"
#include "src/tensor/region.h"

namespace layercast {

// Resource; one thread only. What it borrows outlives it.
class DeviceDigests {
 public:
  // `memory`: of the device, for what the bytes go through.
  DeviceDigests(DeviceStream& stream, Download& download, MemoryResource& memory)
      : stream_(stream), download_(download), memory_(memory) {}
  DeviceDigests(const DeviceDigests&) = delete;
  DeviceDigests& operator=(const DeviceDigests&) = delete;
  ~DeviceDigests() { download_.Drop(); }

  // `digest` is there after Finish. Until then the bytes stay as they are.
  void Add(const std::byte* from, std::size_t bytes, Digest& digest);
  // Of the views' bytes, one after the other.
  void Add(std::span<const RegionView> views, Digest& digest);
  // Of bytes that lie in no one run. They are gathered during this call.
  void Add(const GatheredBytes& from, Digest& digest);
  void Finish() { download_.Finish(); }

 private:
  // Makes the leaves of a part of a tensor, and brings them to the host: the last part's make its digest.
  void AddPart(const std::byte* from, std::size_t bytes, std::size_t tensor_bytes, Digest& digest);

  DeviceStream& stream_;
  Download& download_;
  MemoryResource& memory_;
  Buffer leaves_;                // on the device, of one part: the stream keeps its uses apart
  Buffer packed_;                // so are these
  std::vector<Digest> arrived_;  // leaves of the tensor that is coming
  std::size_t arrived_bytes_ = 0;
};

}  // namespace layercast
