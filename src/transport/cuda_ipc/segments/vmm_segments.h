// Segments by VMM: allocations of the CUDA driver, which other processes import by a file descriptor. Used by
// cuda_driver.h.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <memory>

#include "layercast/error.h"
#include "src/transport/cuda_ipc/segments/driver.h"
#include "src/transport/cuda_ipc/segments/vmm.h"

namespace layercast::cuda_ipc_channel {

// Makes and maps segments on one device, by the driver's functions. Whoever calls MakeSegment or Map must have made
// that device the thread's current one (OnCudaDevice). Immutable; outlives the segments.
class Vmm {
 public:
  // Throws kUnsupported if the device has no VMM.
  Vmm(const VmmFunctions& functions, int device);

  // Both throw as IpcDriver does. MakeSegment throws kUnsupported whatever call failed, unless memory has run out:
  // legacy handles may still do.
  std::unique_ptr<OwnSegment> MakeSegment(std::size_t bytes) const;
  std::unique_ptr<const MappedSegment> Map(UniqueFd descriptor, std::size_t bytes) const;

  // Throws unless the call succeeded: kResourceExhausted if memory ran out, kUnsupported if something is not supported
  // or not permitted, and otherwise `code`.
  void Expect(CUresult result, const char* call, ErrorCode code = ErrorCode::kUnavailable) const;
  void Log(CUresult result, const char* call) const noexcept;
  const VmmFunctions& functions() const { return functions_; }
  int device() const { return device_; }

 private:
  void ExpectAttribute(CUdevice_attribute attribute, const char* what) const;
  CUmemAllocationProp Properties() const;
  std::size_t Granularity() const;

  const VmmFunctions functions_;
  const int device_;
};

}  // namespace layercast::cuda_ipc_channel
