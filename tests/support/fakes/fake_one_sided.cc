#include "tests/support/fakes/fake_one_sided.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "src/base/unique_fd.h"
#include "src/net/token.h"
#include "src/net/wake_up.h"

namespace layercast::test {
namespace {

using ucx_channel::ReadTarget;
using ucx_channel::RegisteredMemory;
using ucx_channel::RemoteKey;
using ucx_channel::RemoteMemory;
using ucx_channel::RemoteReads;
using Bytes = std::vector<std::byte>;

// What a reader asks a target for. The answer begins with a byte: 1 is followed by the bytes, and 0 by nothing. Answers
// come in the order of the questions.
struct Wanted {
  Token key;
  std::uint64_t address;
  std::uint64_t bytes;
};

sockaddr_un SocketAddress(std::span<const std::byte> name, socklen_t& size) {
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};  // it begins with a null byte, so it is in no file system
  if (name.size() >= sizeof(address.sun_path)) throw Error(ErrorCode::kUnavailable, "no target has such an address");
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

// The parts of a publisher's memory that may be read, by key.
class Registry {
 public:
  explicit Registry(std::shared_ptr<FakeDevice> device) : device_(std::move(device)) {}
  FakeDevice& device() const { return *device_; }

  void Add(const Token& key, std::span<const std::byte> memory) {
    const std::lock_guard lock(mutex_);
    memory_[key] = memory;
    ++device_->registered;
    ++device_->held;
  }
  void Drop(const Token& key) {
    const std::lock_guard lock(mutex_);
    memory_.erase(key);
    --device_->held;
  }
  // Copies what a reader wants. Returns false if no key allows it.
  bool Copy(const Wanted& wanted, Bytes& to) {
    const std::lock_guard lock(mutex_);
    const auto found = memory_.find(wanted.key);
    if (found == memory_.end()) return false;
    const std::uint64_t offset = wanted.address - reinterpret_cast<std::uintptr_t>(found->second.data());
    if (offset > found->second.size() || wanted.bytes > found->second.size() - offset) return false;
    const auto bytes = found->second.subspan(offset, wanted.bytes);
    to.assign(bytes.begin(), bytes.end());
    return true;
  }

 private:
  const std::shared_ptr<FakeDevice> device_;
  std::mutex mutex_;
  std::map<Token, std::span<const std::byte>> memory_;  // guarded by mutex_
};

class FakeRegistered final : public RegisteredMemory {
 public:
  FakeRegistered(std::shared_ptr<Registry> registry, std::span<const std::byte> memory)
      : registry_(std::move(registry)), token_(RandomToken()), key_(token_.begin(), token_.end()) {
    registry_->Add(token_, memory);
  }
  ~FakeRegistered() override { registry_->Drop(token_); }
  const Bytes& key() const override { return key_; }

 private:
  const std::shared_ptr<Registry> registry_;
  const Token token_;
  const Bytes key_;
};

// A target that serves one reader at a time.
class FakeTarget final : public ReadTarget {
 public:
  explicit FakeTarget(std::shared_ptr<Registry> registry)
      : registry_(std::move(registry)), listener_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    socklen_t size = 0;
    const sockaddr_un address = SocketAddress(name_, size);
    if (::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
        ::listen(listener_.get(), 1) != 0) {
      throw Error(ErrorCode::kUnavailable, "no socket for a target");
    }
    thread_ = std::jthread([this] { Serve(); });
  }
  ~FakeTarget() override {
    stop_ = true;
    wake_.Ring();
    const std::lock_guard lock(mutex_);
    if (reader_) ::shutdown(reader_.get(), SHUT_RDWR);
  }
  Bytes Address() const override { return {name_.begin(), name_.end()}; }
  bool Progress() override { return false; }
  bool Arm() override { return true; }
  int fd() const override { return -1; }

 private:
  bool WaitFor(int fd) {
    pollfd items[] = {{fd, POLLIN, 0}, {wake_.fd(), POLLIN, 0}};
    ::poll(items, 2, -1);
    return !stop_;
  }
  void Serve() {
    if (!WaitFor(listener_.get())) return;
    UniqueFd reader(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const int fd = reader.get();
    {
      const std::lock_guard lock(mutex_);
      reader_ = std::move(reader);
    }
    Wanted wanted{};
    while (WaitFor(fd) && ::recv(fd, &wanted, sizeof(wanted), MSG_WAITALL) == sizeof(wanted)) {
      if (!registry_->device().stuck && !Answer(fd, wanted)) return;
    }
  }
  bool Answer(int fd, const Wanted& wanted) {
    Bytes bytes;
    const std::byte allowed{registry_->Copy(wanted, bytes)};
    if (allowed == std::byte{0}) ++registry_->device().refused;
    if (registry_->device().lies) std::ranges::fill(bytes, std::byte{0x11});
    return SendAll(fd, {&allowed, 1}) && SendAll(fd, bytes);
  }
  static bool SendAll(int fd, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    }
    return true;
  }

  const std::shared_ptr<Registry> registry_;
  const Token name_ = RandomToken();
  const UniqueFd listener_;
  const WakeUp wake_;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  UniqueFd reader_;  // guarded by mutex_; the thread reads what it put there
  std::jthread thread_;
};

class FakeMemory final : public RemoteMemory {
 public:
  explicit FakeMemory(std::shared_ptr<FakeDevice> device) : registry_(std::make_shared<Registry>(std::move(device))) {}
  std::unique_ptr<RegisteredMemory> Register(std::span<const std::byte> memory) override {
    if (!registry_->device().can_register) throw Error(ErrorCode::kUnsupported, "the fake registers nothing");
    return std::make_unique<FakeRegistered>(registry_, memory);
  }
  std::unique_ptr<ReadTarget> MakeTarget() override { return std::make_unique<FakeTarget>(registry_); }

 private:
  const std::shared_ptr<Registry> registry_;  // second owners: what was registered, and targets
};

struct FakeKey final : RemoteKey {
  Token token{};
};

class FakeReads final : public RemoteReads {
 public:
  explicit FakeReads(std::shared_ptr<FakeDevice> device) : device_(std::move(device)) {}

  void Connect(std::span<const std::byte> name) override {
    if (!device_->can_connect) throw Error(ErrorCode::kUnavailable, "the fake reaches nobody");
    socket_ = UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    socklen_t size = 0;
    const sockaddr_un address = SocketAddress(name, size);
    if (::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) {
      throw Error(ErrorCode::kUnavailable, "no target is there");
    }
  }
  std::string lane() const override { return "fake/device"; }
  std::unique_ptr<RemoteKey> Open(std::span<const std::byte> key) override {
    auto opened = std::make_unique<FakeKey>();
    if (key.size() != opened->token.size()) throw Error(ErrorCode::kCorrupt, "not a key of the fake's");
    std::ranges::copy(key, opened->token.begin());
    return opened;
  }
  bool Read(const RemoteKey& key, std::uint64_t address, std::span<std::byte> destination,
            std::uint64_t ticket) override {
    const Wanted wanted{static_cast<const FakeKey&>(key).token, address, destination.size()};
    under_way_.push_back({ticket, destination});
    if (::send(socket_.get(), &wanted, sizeof(wanted), MSG_NOSIGNAL) != sizeof(wanted)) failure_ = "no target any more";
    return false;
  }
  std::optional<std::uint64_t> TakeLanded() override {
    if (landed_.empty()) return std::nullopt;
    const std::uint64_t ticket = landed_.front();
    landed_.pop_front();
    return ticket;
  }
  bool Progress() override {
    bool moved = false;
    while (!under_way_.empty() && TakeSome()) moved = true;
    return moved;
  }
  bool Arm() override { return true; }
  int fd() const override { return under_way_.empty() ? -1 : socket_.get(); }
  const std::string& failure() const override { return failure_; }
  void Abandon() noexcept override {
    socket_ = UniqueFd();
    under_way_.clear();
  }

 private:
  struct UnderWay {
    std::uint64_t ticket;
    std::span<std::byte> left;
    bool allowed = false;
  };
  // Takes what has come for the oldest read.
  bool TakeSome() {
    UnderWay& read = under_way_.front();
    std::byte answer{};
    const std::span<std::byte> into = read.allowed ? read.left : std::span(&answer, 1);
    const ssize_t got = into.empty() ? 0 : ::recv(socket_.get(), into.data(), into.size(), MSG_DONTWAIT);
    if (got < 0 || (got == 0 && !into.empty())) {
      if (got == 0) failure_ = "the target has gone";
      return false;
    }
    if (!read.allowed) {
      if (answer == std::byte{0}) failure_ = "the target's device allows no such read";
      read.allowed = answer != std::byte{0};
      return read.allowed;
    }
    read.left = read.left.subspan(static_cast<std::size_t>(got));
    if (!read.left.empty()) return true;
    landed_.push_back(read.ticket);
    under_way_.pop_front();
    return true;
  }

  const std::shared_ptr<FakeDevice> device_;
  UniqueFd socket_;
  std::deque<UnderWay> under_way_;
  std::deque<std::uint64_t> landed_;
  std::string failure_;
};

}  // namespace

std::unique_ptr<ucx_channel::RemoteMemory> FakeOneSided::MakeMemory() const {
  return std::make_unique<FakeMemory>(device_);
}

std::unique_ptr<ucx_channel::RemoteReads> FakeOneSided::MakeReads() const {
  return std::make_unique<FakeReads>(device_);
}

}  // namespace layercast::test
