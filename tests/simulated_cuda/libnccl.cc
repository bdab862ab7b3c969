// A library in the place of NCCL: the fake that all tests of the channel have (tests/support/fakes/fake_nccl.h), on the
// simulated CUDA. Its transfers run in streams, beside the threads that abort them.
#include <nccl.h>

#include <chrono>
#include <thread>
#include <utility>

#include "tests/simulated_cuda/simulated_context.h"
#include "tests/simulated_cuda/simulated_memory.h"
#include "tests/simulated_cuda/simulated_stream.h"
#include "tests/support/fakes/fake_nccl.h"

namespace {

using layercast::test::FakeNccl;
using layercast::test::FakeOperation;

class SimulatedDevices final : public layercast::test::FakeNcclDevices {
 public:
  const void* Current() const override { return simulated_cuda::Current(); }
  bool IsDeviceMemory(cudaStream_t /*stream*/, const std::byte* memory, std::size_t bytes) const override {
    const auto range = simulated_cuda::Find(memory);
    return range && range->type == cudaMemoryTypeDevice && simulated_cuda::IsInOneRange(memory, bytes);
  }
  // The stream does nothing else before its peers have done their parts, as with NCCL's kernels.
  void Queue(cudaStream_t stream, FakeOperation operation) const override {
    stream->Queue([operation = std::move(operation)] {
      while (!operation()) std::this_thread::sleep_for(std::chrono::microseconds(50));
    });
  }
};

FakeNccl& Library() {
  static const SimulatedDevices devices;
  static FakeNccl library(NCCL_VERSION_CODE, devices);
  return library;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = Library().version();
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) { return Library().GetErrorString(result); }
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) { return Library().GetUniqueId(id); }
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  return Library().CommInitRankConfig(comm, ranks, id, rank, config);
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  return Library().CommGetAsyncError(comm, error);
}
ncclResult_t ncclCommAbort(ncclComm_t comm) { return Library().CommAbort(comm); }
ncclResult_t ncclGroupStart() { return Library().GroupStart(); }
ncclResult_t ncclGroupEnd() { return Library().GroupEnd(); }
ncclResult_t ncclSend(const void* bytes, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return Library().Send(bytes, count, type, peer, comm, stream);
}
ncclResult_t ncclRecv(void* bytes, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return Library().Recv(bytes, count, type, peer, comm, stream);
}
ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return Library().Broadcast(from, to, count, type, root, comm, stream);
}

}  // extern "C"
