#include "tests/support/fakes/fake_nccl.h"

#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace layercast::test {
namespace {

// What a rank sends to rank 0, which answers the same once it has heard from all.
struct Greeting {
  std::int32_t version;
  std::int32_t ranks;
  std::int32_t rank;
};

sockaddr_un AddressOf(const ncclUniqueId& id) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, id.internal, 32);  // an abstract name begins with a zero
  return address;
}
constexpr socklen_t kAddressBytes = offsetof(sockaddr_un, sun_path) + 1 + 32;

class FakeComm {
 public:
  FakeComm(const FakeNcclDevices& devices, int version, const ncclUniqueId& id, int ranks, int rank)
      : devices_(devices), mine_{version, ranks, rank}, address_(AddressOf(id)) {
    links_->sockets.resize(static_cast<std::size_t>(ranks));
    if (rank != 0) return;
    listener_ = NewSocket();
    const auto* const address = reinterpret_cast<const sockaddr*>(&address_);
    if (::bind(listener_.get(), address, kAddressBytes) != 0 || ::listen(listener_.get(), ranks) != 0) {
      links_->error = ncclSystemError;
    }
  }
  ~FakeComm() {
    const std::lock_guard lock(links_->mutex);
    links_->aborted = true;
    links_->sockets.clear();
  }
  FakeComm(const FakeComm&) = delete;
  FakeComm& operator=(const FakeComm&) = delete;

  // The communicator behind a handle. Ends the process if the thread is on another device than the communicator: the
  // runtime under the real NCCL would open that device.
  static FakeComm& Of(ncclComm_t handle) {
    auto& comm = *reinterpret_cast<FakeComm*>(handle);
    if (comm.devices_.Current() == comm.device_) return comm;
    std::fputs("a call on a communicator of another device than the thread's\n", stderr);
    std::abort();
  }

  // The state, as ncclCommGetAsyncError gives it. Also goes on with what was begun.
  ncclResult_t Progress() {
    const std::lock_guard lock(links_->mutex);
    if (links_->error == ncclSuccess && !greeted_) mine_.rank == 0 ? GatherAll() : GreetRoot();
    if (links_->error != ncclSuccess) return links_->error;
    if (!greeted_) return ncclInProgress;
    if (group_.empty()) return ncclSuccess;
    if (std::exchange(asked_, true)) Launch();
    return group_.empty() ? ncclSuccess : ncclInProgress;
  }
  bool Settled() const {
    const std::lock_guard lock(links_->mutex);
    return greeted_ && group_.empty() && links_->error == ncclSuccess;
  }
  int rank() const { return mine_.rank; }
  bool Has(int rank) const { return 0 <= rank && rank < mine_.ranks && rank != mine_.rank; }
  const std::shared_ptr<FakeLinks>& links() const { return links_; }
  const FakeNcclDevices& devices() const { return devices_; }
  // Launches a group later, when somebody has asked for the state more than once.
  void LaunchLater(std::vector<std::function<void()>> group) {
    group_ = std::move(group);
    asked_ = false;
  }
  void FailLater() {
    group_.push_back([this] { links_->error = ncclInternalError; });
    asked_ = false;
  }

 private:
  static UniqueFd NewSocket() { return UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)); }

  // Receives a greeting. Returns false if it is not there yet. A message of a few bytes over a socket of this host
  // comes whole.
  bool Receive(const UniqueFd& socket, Greeting& greeting) {
    const ssize_t got = ::recv(socket.get(), &greeting, sizeof(greeting), MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) return false;
    if (got != sizeof(greeting)) {
      links_->error = ncclRemoteError;
    } else if (greeting.version != mine_.version || greeting.ranks != mine_.ranks) {
      links_->error = ncclInvalidUsage;
    }
    return links_->error == ncclSuccess;
  }
  void Send(const UniqueFd& socket) {
    if (::send(socket.get(), &mine_, sizeof(mine_), MSG_NOSIGNAL) != sizeof(mine_)) links_->error = ncclRemoteError;
  }

  void GatherAll() {
    while (UniqueFd socket{::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)}) {
      strangers_.push_back(std::move(socket));
    }
    std::erase_if(strangers_, [this](UniqueFd& socket) {
      Greeting theirs{};
      if (!Receive(socket, theirs)) return false;
      const bool taken = !Has(theirs.rank) || links_->sockets[static_cast<std::size_t>(theirs.rank)];
      if (taken) links_->error = ncclInvalidUsage;
      if (!taken) links_->sockets[static_cast<std::size_t>(theirs.rank)] = std::move(socket);
      return true;
    });
    if (links_->error != ncclSuccess || std::ranges::any_of(links_->sockets.begin() + 1, links_->sockets.end(),
                                                            [](const UniqueFd& socket) { return !socket; })) {
      return;
    }
    listener_ = UniqueFd();
    greeted_ = true;
    for (std::size_t rank = 1; rank < links_->sockets.size(); ++rank) Send(links_->sockets[rank]);
  }

  void GreetRoot() {
    UniqueFd& root = links_->sockets[0];
    if (!root) {
      UniqueFd socket = NewSocket();
      if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address_), kAddressBytes) != 0) return;
      root = std::move(socket);
      Send(root);
    }
    Greeting theirs{};
    greeted_ = Receive(root, theirs);
  }
  void Launch() {
    for (const auto& launch : std::exchange(group_, {})) launch();
  }

  const FakeNcclDevices& devices_;
  const void* const device_ = devices_.Current();
  const Greeting mine_;
  const sockaddr_un address_;
  UniqueFd listener_;
  std::vector<UniqueFd> strangers_;                                         // they have not said which rank they are
  const std::shared_ptr<FakeLinks> links_ = std::make_shared<FakeLinks>();  // second owners: transfers in streams
  bool greeted_ = false;
  bool asked_ = false;
  std::vector<std::function<void()>> group_;
};

// The open group of this thread. NCCL keeps one for each thread, too.
struct OpenGroup {
  bool open = false;
  ncclResult_t error = ncclSuccess;
  FakeComm* comm = nullptr;
  std::vector<std::function<void()>> launches;
};
thread_local OpenGroup open_group;

// Adds a call to or from `peer` to the open group. `make` makes the call's operation, when the group is launched.
ncclResult_t AddToGroup(FakeComm& comm, cudaStream_t stream, int peer, const std::byte* memory, std::size_t count,
                        std::function<FakeOperation()> make) {
  const FakeNcclDevices& devices = comm.devices();
  const bool allowed = open_group.open && comm.Settled() && (open_group.comm == nullptr || open_group.comm == &comm);
  if (!allowed) return open_group.error = ncclInvalidUsage;
  if (!comm.Has(peer) || !devices.IsDeviceMemory(stream, memory, count)) return open_group.error = ncclInvalidArgument;
  open_group.comm = &comm;
  open_group.launches.emplace_back([make = std::move(make), &devices, stream, links = comm.links()] {
    devices.Queue(stream, [operation = make(), links] {
      const std::lock_guard lock(links->mutex);
      return operation();
    });
  });
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
  if (fail_init || devices_.Current() == nullptr) return ncclUnhandledCudaError;
  const ncclConfig_t expected = NCCL_CONFIG_INITIALIZER;
  if (config->magic != expected.magic || config->size != expected.size || config->blocking != 0 || ranks < 2 ||
      rank < 0 || rank >= ranks) {
    return ncclInvalidArgument;
  }
  ++communicators;
  *comm = reinterpret_cast<ncclComm_t>(new FakeComm(devices_, version_, id, ranks, rank));
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

ncclResult_t FakeNccl::Send(const void* bytes, std::size_t count, ncclDataType_t /*type*/, int peer, ncclComm_t handle,
                            cudaStream_t stream) {
  FakeComm& comm = FakeComm::Of(handle);
  auto* const memory = static_cast<std::byte*>(const_cast<void*>(bytes));
  ++sends;
  bytes_sent += count;
  return AddToGroup(comm, stream, peer, memory, count,
                    [links = comm.links(), peer, memory, count] { return SendTo(links, peer, memory, count); });
}

ncclResult_t FakeNccl::Recv(void* bytes, std::size_t count, ncclDataType_t /*type*/, int peer, ncclComm_t handle,
                            cudaStream_t stream) {
  FakeComm& comm = FakeComm::Of(handle);
  auto* const memory = static_cast<std::byte*>(bytes);
  return AddToGroup(comm, stream, peer, memory, count,
                    [links = comm.links(), peer, memory, count] { return ReceiveFrom(links, peer, memory, count); });
}

ncclResult_t FakeNccl::Broadcast(const void* from, void* to, std::size_t count, ncclDataType_t /*type*/, int root,
                                 ncclComm_t handle, cudaStream_t stream) {
  FakeComm& comm = FakeComm::Of(handle);
  auto* const memory = static_cast<std::byte*>(to);
  if (root != 0) return open_group.error = ncclInvalidArgument;  // only the middle of the star may be the root
  if (comm.rank() != root) {
    return AddToGroup(comm, stream, root, memory, count, [links = comm.links(), root, memory, count] {
      return JoinBroadcast(links, root, memory, count);
    });
  }
  ++broadcasts;
  bytes_sent += count;
  if (from != to) return open_group.error = ncclInvalidArgument;  // the fake does not copy at the root
  return AddToGroup(comm, stream, root + 1, memory, count,
                    [links = comm.links(), memory, count] { return BroadcastToAll(links, memory, count); });
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
