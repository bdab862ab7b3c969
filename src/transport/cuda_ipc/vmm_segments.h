// Segments by VMM: allocations of the CUDA driver, which other processes import by a file descriptor.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <memory>

#include "layercast/error.h"
#include "src/transport/cuda_ipc/driver.h"
#include "src/transport/cuda_ipc/vmm.h"

namespace layercast::cuda_ipc_channel {

// The driver's functions with the device that they are called for: on a thread that is there (OnCudaDevice), as far as
// segments are made. Immutable; outlives the segments.
class Vmm {
 public:
  // Throws kUnsupported where the device has no VMM.
  Vmm(const VmmFunctions& functions, int device);

  // Throw as IpcDriver does; what keeps MakeSegment from it is kUnsupported, but for memory that ran out.
  std::unique_ptr<OwnSegment> MakeSegment(std::size_t bytes) const;
  std::unique_ptr<const MappedSegment> Map(UniqueFd descriptor, std::size_t bytes) const;

  // Throws unless the call did what it should: what ran out, and what there is not, whatever `code` says.
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
