// What the ranks of a FakeNccl's communicator send to each other, and how bytes go between two of them.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "src/base/unique_fd.h"

namespace layercast::test {

// What a communicator shares with its transfers, which may still lie in streams when it is gone.
struct FakeLinks {
  std::mutex mutex;               // held by whoever uses the rest
  std::vector<UniqueFd> sockets;  // by the other's rank; none if that cannot be reached
  bool aborted = false;
  ncclResult_t error = ncclSuccess;
};

enum class FakeCall : std::uint64_t { kSend = 1, kBroadcast = 2 };

// One side's part of a call, as an operation of a stream. It does what it can without waiting, and returns true when it
// is done. After an error it hangs until it is aborted, as NCCL's kernels do.
using FakeOperation = std::function<bool()>;
FakeOperation SendTo(std::shared_ptr<FakeLinks> links, int peer, std::byte* memory, std::size_t bytes);
FakeOperation ReceiveFrom(std::shared_ptr<FakeLinks> links, int peer, std::byte* memory, std::size_t bytes);
FakeOperation BroadcastToAll(std::shared_ptr<FakeLinks> links, std::byte* memory, std::size_t bytes);
FakeOperation JoinBroadcast(std::shared_ptr<FakeLinks> links, int root, std::byte* memory, std::size_t bytes);

}  // namespace layercast::test
