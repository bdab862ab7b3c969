#include "src/transport/nccl/wire/communicator.h"

#include <string>

#include "layercast/error.h"
#include "src/base/check.h"
#include "src/base/log.h"

namespace layercast::nccl_channel {
namespace {

[[noreturn]] void Fail(NcclLibrary& library, ncclResult_t result, const char* call) {
  throw Error(ErrorCode::kUnavailable, std::string("NCCL: ") + call + ": " + library.GetErrorString(result));
}

}  // namespace

ncclUniqueId MakeUniqueId(NcclLibrary& library) {
  ncclUniqueId id{};
  const ncclResult_t result = library.GetUniqueId(&id);
  if (result != ncclSuccess) Fail(library, result, "ncclGetUniqueId");
  return id;
}

Communicator::Communicator(NcclLibrary& library, ChannelDevice& device, const Membership& membership)
    : library_(library), device_(device) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclResult_t result = ncclSuccess;
  device_.OnDevice(
      [&] { result = library_.CommInitRankConfig(&comm_, membership.ranks, membership.id, membership.rank, &config); });
  if (result == ncclSuccess || result == ncclInProgress) return;
  Abort();
  Fail(library_, result, "ncclCommInitRankConfig");
}

Communicator::~Communicator() { Abort(); }

void Communicator::Abort() noexcept {
  if (comm_ == nullptr) return;
  try {
    device_.OnDevice([&] { static_cast<void>(library_.CommAbort(comm_)); });
  } catch (const Error& error) {
    log::error("nccl: a communicator was not aborted: {}", error.what());
  }
}

bool Communicator::Settled() {
  ncclResult_t state = ncclSuccess;
  device_.OnDevice([&] { Expect(library_.CommGetAsyncError(comm_, &state), "ncclCommGetAsyncError"); });
  if (state != ncclSuccess && state != ncclInProgress) Fail(library_, state, "the communicator has failed");
  settled_ = state == ncclSuccess;
  return settled_;
}

void Communicator::Send(std::span<const Transfer> transfers, const CopyStream& stream) {
  Group(transfers, [&](const Transfer& transfer) {
    Expect(library_.Send(transfer.memory, transfer.bytes, ncclInt8, transfer.receiver, comm_, stream.handle()),
           "ncclSend");
  });
}

void Communicator::Receive(std::span<const Transfer> transfers, const CopyStream& stream) {
  Group(transfers, [&](const Transfer& transfer) {
    Expect(library_.Recv(transfer.memory, transfer.bytes, ncclInt8, kPublisherRank, comm_, stream.handle()),
           "ncclRecv");
  });
}

void Communicator::Broadcast(std::span<const Transfer> transfers, const CopyStream& stream) {
  Group(transfers, [&](const Transfer& transfer) {
    Expect(library_.Broadcast(transfer.memory, transfer.memory, transfer.bytes, ncclInt8, kPublisherRank, comm_,
                              stream.handle()),
           "ncclBroadcast");
  });
}

template <typename Call>
void Communicator::Group(std::span<const Transfer> transfers, const Call& call) {
  LAYERCAST_CHECK(settled_);
  settled_ = false;
  device_.OnDevice([&] {
    Expect(library_.GroupStart(), "ncclGroupStart");
    try {
      for (const Transfer& transfer : transfers) call(transfer);
    } catch (...) {
      static_cast<void>(library_.GroupEnd());  // a group left open would swallow the thread's next one
      throw;
    }
    Expect(library_.GroupEnd(), "ncclGroupEnd");
  });
}

void Communicator::Expect(ncclResult_t result, const char* call) {
  if (result != ncclSuccess && result != ncclInProgress) Fail(library_, result, call);
}

}  // namespace layercast::nccl_channel
