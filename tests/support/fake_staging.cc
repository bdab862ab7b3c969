#include "tests/support/fake_staging.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "src/base/check.h"
#include "src/base/deadline.h"
#include "src/transport/token.h"

namespace layercast::test {
namespace {
constexpr std::chrono::seconds kStreamPatience{5};  // what a stream waits for may be queued by another thread
thread_local const FakeStaging* current_device = nullptr;
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

DeviceUuid FakeStaging::uuid() const { return only_ ? *only_ : RandomToken(); }

std::unique_ptr<StagingStream> FakeStaging::MakeStream() { return std::make_unique<FakeStream>(*this); }

void KnownMemory::Know(const std::byte* address, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  blocks_.emplace(address, bytes);
}

void KnownMemory::Forget(const std::byte* address) {
  const std::lock_guard lock(mutex_);
  blocks_.erase(address);
}

void FakeStaging::OnDevice(const std::function<void()>& call) {
  class Scope {
   public:
    explicit Scope(const FakeStaging* device) : before_(std::exchange(current_device, device)) {}
    ~Scope() { current_device = before_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const FakeStaging* const before_;
  };
  const Scope scope(this);
  call();
}

const FakeStaging* FakeStaging::Current() { return current_device; }

FakeStream::~FakeStream() {
  for (const Deadline deadline = Deadline::After(kStreamPatience); !deadline.Passed(); std::this_thread::yield()) {
    if (Reached(Mark())) return;
  }
  std::fputs("a stream ends while something in it waits for a peer\n", stderr);
  std::abort();
}

void FakeStream::Copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  LAYERCAST_CHECK(device_.Reaches(to) && device_.Reaches(from));
  Queue([to, from, bytes] {
    std::memcpy(to, from, bytes);
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
