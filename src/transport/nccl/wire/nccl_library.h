// The functions of NCCL that this channel calls, as nccl.h has them. The real ones come from dynamic_nccl.h; tests
// bring their own, which need no GPU.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <string>

namespace layercast::nccl_channel {

// Thread-safe, as NCCL is; one communicator belongs to one thread at a time.
class NcclLibrary {
 public:
  virtual ~NcclLibrary() = default;
  // NCCL_VERSION_CODE of the library, not of the header.
  virtual int version() const = 0;

  virtual ncclResult_t GetUniqueId(ncclUniqueId* id) = 0;
  virtual ncclResult_t CommInitRankConfig(ncclComm_t* comm, int ranks, const ncclUniqueId& id, int rank,
                                          ncclConfig_t* config) = 0;
  virtual ncclResult_t CommGetAsyncError(ncclComm_t comm, ncclResult_t* error) = 0;
  virtual ncclResult_t CommAbort(ncclComm_t comm) = 0;
  virtual ncclResult_t GroupStart() = 0;
  virtual ncclResult_t GroupEnd() = 0;
  virtual ncclResult_t Send(const void* bytes, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                            cudaStream_t stream) = 0;
  virtual ncclResult_t Recv(void* bytes, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                            cudaStream_t stream) = 0;
  virtual ncclResult_t Broadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                                 ncclComm_t comm, cudaStream_t stream) = 0;
  virtual const char* GetErrorString(ncclResult_t result) = 0;
};

// A version code of NCCL as text: "2.28.9".
std::string VersionText(int version);

}  // namespace layercast::nccl_channel
