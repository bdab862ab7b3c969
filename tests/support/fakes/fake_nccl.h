// A fake of the part of NCCL that the channel calls, over sockets between threads and processes and on the streams of
// some fake of a device. A communicator is a star with rank 0 in the middle. As with the real NCCL, a broadcast moves
// no byte before every rank has joined it, and ranks that do different things wait for each other until they are
// aborted. It is stricter where the real one would hang: it is an error if sizes differ, and if a call is made while
// another is in progress, or while the thread is on another device.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "src/transport/nccl/wire/nccl_library.h"
#include "tests/support/fakes/fake_nccl_wire.h"

namespace layercast::test {

// The devices that a FakeNccl works on. Thread-safe.
class FakeNcclDevices {
 public:
  virtual ~FakeNcclDevices() = default;
  // What tells the calling thread's device from others. Null if the thread is on none.
  virtual const void* Current() const = 0;
  virtual bool IsDeviceMemory(cudaStream_t stream, const std::byte* memory, std::size_t bytes) const = 0;
  virtual void Queue(cudaStream_t stream, FakeOperation operation) const = 0;
};
const FakeNcclDevices& FakeChannelDevices();  // those of fake_channel_device.h

// Thread-safe.
class FakeNccl final : public nccl_channel::NcclLibrary {
 public:
  explicit FakeNccl(int version = NCCL_VERSION_CODE, const FakeNcclDevices& devices = FakeChannelDevices())
      : version_(version), devices_(devices) {}

  // What goes wrong from now on.
  std::atomic<bool> fail_unique_id{false};
  std::atomic<bool> fail_init{false};
  std::atomic<bool> never_settle{false};    // setting up never ends
  std::atomic<int> groups_until_error{-1};  // so many more groups work; the next one fails later, on its own

  // What was asked for: the number of calls, and the bytes that leave a rank. A broadcast leaves its root once, however
  // many take it.
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
  const FakeNcclDevices& devices_;
};

}  // namespace layercast::test
