// NCCL as far as the channel calls it, over sockets between threads and processes, on streams of FakeChannelDevice: a
// star, whose middle is rank 0. As with the real one, a broadcast moves no byte before every rank has joined it, and
// ranks that do different things wait for each other until they are aborted. Stricter where the real one would hang:
// sizes that differ are an error, and so is a call while another is in progress, or while the thread is on another
// device.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "src/transport/nccl/nccl_library.h"

namespace layercast::test {

// Thread-safe.
class FakeNccl final : public nccl_channel::NcclLibrary {
 public:
  explicit FakeNccl(int version = NCCL_VERSION_CODE) : version_(version) {}

  // What goes wrong from now on.
  std::atomic<bool> fail_unique_id{false};
  std::atomic<bool> fail_init{false};
  std::atomic<bool> never_settle{false};    // setting up goes on for ever
  std::atomic<int> groups_until_error{-1};  // so many more groups work; the one after fails by itself, later

  // What was asked for: calls, and the bytes that leave a rank. A broadcast leaves its root once, whoever takes it.
  std::atomic<int> communicators{0};
  std::atomic<int> sends{0};
  std::atomic<int> broadcasts{0};
  std::atomic<std::uint64_t> bytes_sent{0};

  int version() const override { return version_; }
  ncclResult_t GetUniqueId(ncclUniqueId* id) override;
  ncclResult_t CommInitRankConfig(ncclComm_t* comm, int ranks, const ncclUniqueId& id, int rank,
                                  ncclConfig_t* config) override;
  ncclResult_t CommGetAsyncError(ncclComm_t comm, ncclResult_t* error) override;
  ncclResult_t CommAbort(ncclComm_t comm) override;
  ncclResult_t GroupStart() override;
  ncclResult_t GroupEnd() override;
  ncclResult_t Send(const void* bytes, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                    cudaStream_t stream) override;
  ncclResult_t Recv(void* bytes, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                    cudaStream_t stream) override;
  ncclResult_t Broadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                         cudaStream_t stream) override;
  const char* GetErrorString(ncclResult_t result) override;

 private:
  const int version_;
};

}  // namespace layercast::test
