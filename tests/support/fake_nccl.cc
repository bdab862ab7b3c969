#include "tests/support/fake_nccl.h"

#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "src/base/unique_fd.h"
#include "tests/support/fake_staging.h"

namespace layercast::test {
namespace {

struct Greeting {
  std::int32_t version;
  std::int32_t rank;
};

// What the transfers of a communicator share with it: they lie in streams when it is gone.
struct Wire {
  UniqueFd socket;
  bool aborted = false;
  ncclResult_t error = ncclSuccess;
};

// `bytes` over `wire`, as a message of its length and the bytes. Does what it can without waiting.
class WireTransfer {
 public:
  WireTransfer(std::shared_ptr<Wire> wire, std::byte* memory, std::size_t bytes, bool sends)
      : wire_(std::move(wire)), memory_(memory), bytes_(bytes), sends_(sends), length_(bytes) {}

  bool operator()() {
    if (wire_->aborted) return true;
    while (at_ < sizeof(length_) + bytes_) {
      if (wire_->error != ncclSuccess) return false;  // it hangs until it is aborted, as NCCL's kernels do
      const std::optional<std::size_t> moved = MoveSome();
      if (!moved) return false;
      at_ += *moved;
      if (at_ == sizeof(length_) && length_ != bytes_) wire_->error = ncclInvalidUsage;
    }
    return wire_->error == ncclSuccess;
  }

 private:
  std::optional<std::size_t> MoveSome() {
    const bool in_length = at_ < sizeof(length_);
    std::byte* const from = in_length ? reinterpret_cast<std::byte*>(&length_) + at_ : memory_ + at_ - sizeof(length_);
    const std::size_t left = in_length ? sizeof(length_) - at_ : sizeof(length_) + bytes_ - at_;
    const int fd = wire_->socket.get();
    const ssize_t moved =
        sends_ ? ::send(fd, from, left, MSG_DONTWAIT | MSG_NOSIGNAL) : ::recv(fd, from, left, MSG_DONTWAIT);
    if (moved > 0) return static_cast<std::size_t>(moved);
    if (moved == 0 || (errno != EAGAIN && errno != EINTR)) wire_->error = ncclRemoteError;
    return std::nullopt;
  }

  std::shared_ptr<Wire> wire_;
  std::byte* memory_;
  std::size_t bytes_;
  bool sends_;
  std::uint64_t length_;
  std::size_t at_ = 0;
};

sockaddr_un AddressOf(const ncclUniqueId& id) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, id.internal, 32);  // an abstract name opens with a zero
  return address;
}
constexpr socklen_t kAddressBytes = offsetof(sockaddr_un, sun_path) + 1 + 32;

class FakeComm {
 public:
  FakeComm(int version, const ncclUniqueId& id, int rank) : mine_{version, rank}, address_(AddressOf(id)) {
    if (rank != 0) return;
    listener_ = NewSocket();
    const auto* const address = reinterpret_cast<const sockaddr*>(&address_);
    if (::bind(listener_.get(), address, kAddressBytes) != 0 || ::listen(listener_.get(), 1) != 0) {
      wire_->error = ncclSystemError;
    }
  }
  ~FakeComm() {
    wire_->aborted = true;
    wire_->socket = UniqueFd();
  }
  FakeComm(const FakeComm&) = delete;
  FakeComm& operator=(const FakeComm&) = delete;

  static FakeComm& Of(ncclComm_t comm) { return *reinterpret_cast<FakeComm*>(comm); }

  // As ncclCommGetAsyncError: also goes on with what was begun.
  ncclResult_t Progress() {
    if (wire_->error != ncclSuccess) return wire_->error;
    if (!greeted_) return Greet();
    if (group_.empty()) return ncclSuccess;
    if (std::exchange(asked_, true)) Launch();
    return group_.empty() ? ncclSuccess : ncclInProgress;
  }
  bool settled() const { return greeted_ && group_.empty() && wire_->error == ncclSuccess; }
  const std::shared_ptr<Wire>& wire() const { return wire_; }
  // Later, when somebody has asked for the state more than once.
  void LaunchLater(std::vector<std::function<void()>> group) {
    group_ = std::move(group);
    asked_ = false;
  }
  void FailLater() {
    group_.push_back([this] { wire_->error = ncclInternalError; });
    asked_ = false;
  }

 private:
  static UniqueFd NewSocket() { return UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)); }

  ncclResult_t Greet() {
    if (!wire_->socket) Connect();
    if (!wire_->socket) return wire_->error == ncclSuccess ? ncclInProgress : wire_->error;
    Greeting theirs{};
    const ssize_t got = ::recv(wire_->socket.get(), &theirs, sizeof(theirs), MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) return ncclInProgress;
    // A message of eight bytes over a socket of this host comes whole.
    if (got != sizeof(theirs)) return wire_->error = ncclRemoteError;
    if (theirs.version != mine_.version || theirs.rank == mine_.rank) return wire_->error = ncclInvalidUsage;
    greeted_ = true;
    return ncclSuccess;
  }
  void Connect() {
    if (listener_) {
      wire_->socket = UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (wire_->socket) listener_ = UniqueFd();
    } else {
      UniqueFd socket = NewSocket();
      if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address_), kAddressBytes) != 0) return;
      wire_->socket = std::move(socket);
    }
    if (wire_->socket && ::send(wire_->socket.get(), &mine_, sizeof(mine_), MSG_NOSIGNAL) != sizeof(mine_)) {
      wire_->error = ncclRemoteError;
    }
  }
  void Launch() {
    for (const auto& launch : std::exchange(group_, {})) launch();
  }

  const Greeting mine_;
  const sockaddr_un address_;
  UniqueFd listener_;
  const std::shared_ptr<Wire> wire_ = std::make_shared<Wire>();  // second owners: transfers in streams
  bool greeted_ = false;
  bool asked_ = false;
  std::vector<std::function<void()>> group_;
};

// The open group of this thread, as NCCL has it.
struct OpenGroup {
  bool open = false;
  ncclResult_t error = ncclSuccess;
  FakeComm* comm = nullptr;
  std::vector<std::function<void()>> launches;
};
thread_local OpenGroup open_group;

ncclResult_t Transfer(void* bytes, std::size_t count, ncclComm_t handle, cudaStream_t stream, bool sends) {
  FakeComm& comm = FakeComm::Of(handle);
  FakeStream& queue = FakeStream::Of(stream);
  auto* const memory = static_cast<std::byte*>(bytes);
  const bool allowed = open_group.open && comm.settled() && (open_group.comm == nullptr || open_group.comm == &comm);
  if (!allowed) return open_group.error = ncclInvalidUsage;
  if (!queue.device().IsDeviceMemory(memory, count)) return open_group.error = ncclInvalidArgument;
  open_group.comm = &comm;
  open_group.launches.emplace_back(
      [wire = comm.wire(), memory, count, sends, &queue] { queue.Queue(WireTransfer(wire, memory, count, sends)); });
  return ncclSuccess;
}

}  // namespace

ncclResult_t FakeNccl::GetUniqueId(ncclUniqueId* id) {
  if (fail_unique_id) return ncclSystemError;
  *id = {};
  std::array<unsigned char, 16> random{};
  if (::getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size())) return ncclSystemError;
  for (std::size_t i = 0; i < random.size(); ++i) {
    id->internal[2 * i] = static_cast<char>('a' + (random[i] >> 4));
    id->internal[2 * i + 1] = static_cast<char>('a' + (random[i] & 15));
  }
  return ncclSuccess;
}

ncclResult_t FakeNccl::CommInitRankConfig(ncclComm_t* comm, int ranks, const ncclUniqueId& id, int rank,
                                          ncclConfig_t* config) {
  if (fail_init) return ncclUnhandledCudaError;
  const ncclConfig_t expected = NCCL_CONFIG_INITIALIZER;
  if (config->magic != expected.magic || config->size != expected.size || config->blocking != 0 || ranks != 2) {
    return ncclInvalidArgument;
  }
  *comm = reinterpret_cast<ncclComm_t>(new FakeComm(version_, id, rank));
  return ncclInProgress;
}

ncclResult_t FakeNccl::CommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  *error = never_settle ? ncclInProgress : FakeComm::Of(comm).Progress();
  return ncclSuccess;
}

ncclResult_t FakeNccl::CommAbort(ncclComm_t comm) {
  delete &FakeComm::Of(comm);
  return ncclSuccess;
}

ncclResult_t FakeNccl::GroupStart() {
  if (open_group.open) return ncclInvalidUsage;
  open_group = {};
  open_group.open = true;
  return ncclSuccess;
}

ncclResult_t FakeNccl::GroupEnd() {
  OpenGroup group = std::exchange(open_group, {});
  if (!group.open) return ncclInvalidUsage;
  if (group.error != ncclSuccess || group.comm == nullptr) return group.error;
  if (groups_until_error >= 0 && groups_until_error-- == 0) {
    group.comm->FailLater();
  } else {
    group.comm->LaunchLater(std::move(group.launches));
  }
  return ncclInProgress;
}

ncclResult_t FakeNccl::Send(const void* bytes, std::size_t count, ncclDataType_t /*type*/, int /*peer*/,
                            ncclComm_t comm, cudaStream_t stream) {
  return Transfer(const_cast<void*>(bytes), count, comm, stream, true);
}

ncclResult_t FakeNccl::Recv(void* bytes, std::size_t count, ncclDataType_t /*type*/, int /*peer*/, ncclComm_t comm,
                            cudaStream_t stream) {
  return Transfer(bytes, count, comm, stream, false);
}

const char* FakeNccl::GetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclUnhandledCudaError: return "unhandled cuda error";
    case ncclSystemError: return "unhandled system error";
    case ncclInternalError: return "internal error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage";
    case ncclRemoteError: return "remote process exited or there was a network error";
    default: return "no error";
  }
}

}  // namespace layercast::test
