#include "tests/support/fakes/fake_channel_device.h"

#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>

#include "src/base/check.h"
#include "src/base/deadline.h"
#include "src/net/token.h"

namespace layercast::test {
namespace {
constexpr std::chrono::seconds kStreamPatience{5};  // another thread may have to queue what it waits for
thread_local const FakeChannelDevice* current_device = nullptr;
}  // namespace

std::byte* KnownMemory::Allocate(std::size_t bytes) {
  std::byte* const address = host_.Allocate(bytes);
  const std::lock_guard lock(mutex_);
  blocks_.emplace(address, bytes);
  return address;
}

void KnownMemory::Deallocate(std::byte* address, std::size_t bytes) noexcept {
  {
    const std::lock_guard lock(mutex_);
    blocks_.erase(address);
  }
  host_.Deallocate(address, bytes);
}

bool KnownMemory::Has(const std::byte* address, std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  const auto next = blocks_.upper_bound(address);
  if (next == blocks_.begin()) return false;
  const auto& [begin, size] = *std::prev(next);
  return address + bytes <= begin + size;
}

DeviceUuid FakeChannelDevice::uuid() const { return only_ ? *only_ : RandomToken(); }

std::unique_ptr<CopyStream> FakeChannelDevice::MakeStream() { return std::make_unique<FakeStream>(*this); }

void KnownMemory::Know(const std::byte* address, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  blocks_.emplace(address, bytes);
}

void KnownMemory::Forget(const std::byte* address) {
  const std::lock_guard lock(mutex_);
  blocks_.erase(address);
}

void FakeChannelDevice::OnDevice(const std::function<void()>& call) {
  class Scope {
   public:
    explicit Scope(const FakeChannelDevice* device) : before_(std::exchange(current_device, device)) {}
    ~Scope() { current_device = before_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const FakeChannelDevice* const before_;
  };
  const Scope scope(this);
  call();
}

const FakeChannelDevice* FakeChannelDevice::Current() { return current_device; }

FakeStream::~FakeStream() {
  for (const Deadline deadline = Deadline::After(kStreamPatience); !deadline.Passed(); std::this_thread::yield()) {
    if (Reached(Mark())) return;
  }
  std::fputs("a stream ends while something in it waits for a peer\n", stderr);
  std::abort();
}

void FakeStream::Copy(std::byte* to, const std::byte* from, std::size_t bytes) { QueueCopy(to, AsView({from, bytes})); }

void FakeStream::CopyPitched(std::byte* to, const RegionView& from) {
  LAYERCAST_CHECK(from.stride >= from.row_bytes && from.stride <= kMaxPitch);
  QueueCopy(to, from);
}

void FakeStream::QueueCopy(std::byte* to, const RegionView& from) {
  const std::byte* const last = from.row(from.rows - 1) + from.row_bytes - 1;
  LAYERCAST_CHECK(device_.Has(to) && device_.Has(to + from.num_bytes() - 1) && device_.Has(from.base) &&
                  device_.Has(last));
  ++device_.copies;
  device_.bytes_copied += from.num_bytes();
  Queue([to, from] {
    Pack(from, to);
    return true;
  });
}

bool FakeStream::Reached(std::uint64_t mark) {
  while (!device_.held && !queued_.empty() && queued_.front()()) {
    queued_.pop_front();
    ++done_;
  }
  return done_ >= mark;
}

}  // namespace layercast::test
