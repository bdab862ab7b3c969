#include "tests/support/fakes/fake_nccl_wire.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

namespace layercast::test {
namespace {

// What begins a transfer. A receiver that is told of another call than its own waits for ever.
struct Header {
  FakeCall call;
  std::uint64_t bytes;
};

// Moves bytes. Returns how many moved, or nothing if none can move now, or ever again.
std::optional<std::size_t> Move(FakeLinks& links, int peer, std::byte* at, std::size_t bytes, bool out) {
  const int fd = links.sockets[static_cast<std::size_t>(peer)].get();
  const ssize_t moved = out ? ::send(fd, at, bytes, MSG_DONTWAIT | MSG_NOSIGNAL) : ::recv(fd, at, bytes, MSG_DONTWAIT);
  if (moved > 0) return static_cast<std::size_t>(moved);
  if (moved == 0 || (errno != EAGAIN && errno != EINTR)) links.error = ncclRemoteError;
  return std::nullopt;
}

// The transfer of a header and some bytes, to one peer or from it.
class OneTransfer {
 public:
  OneTransfer(std::shared_ptr<FakeLinks> links, int peer, FakeCall call, std::byte* memory, std::size_t bytes, bool out)
      : links_(std::move(links)), peer_(peer), mine_{call, bytes}, header_(mine_), memory_(memory), out_(out) {}

  bool operator()() {
    if (links_->aborted) return true;
    while (at_ < sizeof(header_) + mine_.bytes && links_->error == ncclSuccess && header_.call == mine_.call) {
      const std::optional<std::size_t> moved = MoveSome();
      if (!moved) return false;
      at_ += *moved;
      if (at_ == sizeof(header_) && header_.call == mine_.call && header_.bytes != mine_.bytes) {
        links_->error = ncclInvalidUsage;
      }
    }
    return at_ == sizeof(header_) + mine_.bytes && links_->error == ncclSuccess;
  }

 private:
  std::optional<std::size_t> MoveSome() {
    if (at_ < sizeof(header_)) {
      return Move(*links_, peer_, reinterpret_cast<std::byte*>(&header_) + at_, sizeof(header_) - at_, out_);
    }
    const std::size_t done = at_ - sizeof(header_);
    return Move(*links_, peer_, memory_ + done, mine_.bytes - done, out_);
  }

  std::shared_ptr<FakeLinks> links_;
  int peer_;
  Header mine_;
  Header header_;
  std::byte* memory_;
  bool out_;
  std::size_t at_ = 0;
};

// The byte that every member sends to the root when it has come to the broadcast.
constexpr std::byte kJoined{0x4A};

class RootsPart {
 public:
  RootsPart(std::shared_ptr<FakeLinks> links, std::byte* memory, std::size_t bytes) : links_(std::move(links)) {
    for (int peer = 0; peer < static_cast<int>(links_->sockets.size()); ++peer) {
      if (!links_->sockets[static_cast<std::size_t>(peer)]) continue;
      absent_.push_back(peer);
      transfers_.emplace_back(links_, peer, FakeCall::kBroadcast, memory, bytes, true);
    }
  }
  bool operator()() {
    if (links_->aborted) return true;
    if (links_->error != ncclSuccess) return false;
    std::erase_if(absent_, [&](int peer) {
      std::byte joined{};
      return Move(*links_, peer, &joined, 1, false).has_value();
    });
    if (!absent_.empty() || links_->error != ncclSuccess) return false;
    std::erase_if(transfers_, [](OneTransfer& transfer) { return transfer(); });
    return transfers_.empty();
  }

 private:
  std::shared_ptr<FakeLinks> links_;
  std::vector<int> absent_;
  std::vector<OneTransfer> transfers_;
};

class MembersPart {
 public:
  MembersPart(std::shared_ptr<FakeLinks> links, int root, std::byte* memory, std::size_t bytes)
      : links_(links), root_(root), transfer_(std::move(links), root, FakeCall::kBroadcast, memory, bytes, false) {}
  bool operator()() {
    if (links_->aborted) return true;
    if (links_->error != ncclSuccess) return false;
    std::byte joined = kJoined;
    joined_ = joined_ || Move(*links_, root_, &joined, 1, true).has_value();
    return joined_ && transfer_();
  }

 private:
  std::shared_ptr<FakeLinks> links_;
  int root_;
  bool joined_ = false;
  OneTransfer transfer_;
};

}  // namespace

FakeOperation SendTo(std::shared_ptr<FakeLinks> links, int peer, std::byte* memory, std::size_t bytes) {
  return OneTransfer(std::move(links), peer, FakeCall::kSend, memory, bytes, true);
}
FakeOperation ReceiveFrom(std::shared_ptr<FakeLinks> links, int peer, std::byte* memory, std::size_t bytes) {
  return OneTransfer(std::move(links), peer, FakeCall::kSend, memory, bytes, false);
}
FakeOperation BroadcastToAll(std::shared_ptr<FakeLinks> links, std::byte* memory, std::size_t bytes) {
  return RootsPart(std::move(links), memory, bytes);
}
FakeOperation JoinBroadcast(std::shared_ptr<FakeLinks> links, int root, std::byte* memory, std::size_t bytes) {
  return MembersPart(std::move(links), root, memory, bytes);
}

}  // namespace layercast::test
