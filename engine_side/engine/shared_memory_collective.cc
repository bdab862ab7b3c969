#include "engine_side/engine/shared_memory_collective.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <new>
#include <string>
#include <thread>
#include <utility>

#include "layercast/error.h"
#include "src/base/check.h"

namespace layercast {
namespace {

constexpr std::uint64_t kMagic = 0x6c63636f6c6c3031;  // "lccoll01"
constexpr int kMaxRanks = 64;
constexpr int kSpins = 500;                    // some ten microseconds: by how much a peer on its own core is late
constexpr std::chrono::milliseconds kNap{50};  // between looks at whether the peer still lives

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

long Futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value, const timespec* timeout) {
  static_assert(sizeof(word) == sizeof(std::uint32_t));
  return ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation, value, timeout, nullptr, 0);
}

// Gone, or ended and not yet waited for by its parent.
bool IsDead(int pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  if (!std::getline(stat, text)) return true;
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= text.size()) return true;
  const char state = text[name_end + 2];
  return state == 'Z' || state == 'X';
}

}  // namespace

struct CollectiveSegment::Header {
  struct alignas(64) Rank {
    std::atomic<std::uint32_t> arrived;   // the exchange that it has published, modulo 2^32
    std::atomic<std::uint32_t> sleepers;  // peers asleep on `arrived`
    std::atomic<std::int32_t> pid;        // 0: not attached yet
    // What it published, for the even and the odd exchanges.
    std::array<std::atomic<std::uint32_t>, 2> operation;
    std::array<std::atomic<std::uint64_t>, 2> floats;
  };
  std::uint64_t magic;
  std::uint64_t size;
  std::uint64_t part_bytes;
  std::atomic<std::uint32_t> broken;  // 1 + the rank that is at fault; 0: whole
  std::array<Rank, kMaxRanks> ranks;
};

CollectiveSegment CollectiveSegment::Create(int size, std::size_t part_bytes) {
  if (size < 1 || size > kMaxRanks) {
    throw Error(ErrorCode::kInvalidArgument, "a group of " + std::to_string(size) +
                                                 " ranks on one host: expected 1 to " + std::to_string(kMaxRanks));
  }
  part_bytes = (part_bytes + 63) / 64 * 64;
  const std::size_t bytes = sizeof(Header) + 2 * static_cast<std::size_t>(size) * part_bytes;
  UniqueFd fd(::memfd_create("layercast-collective", MFD_CLOEXEC));
  if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    throw Error(ErrorCode::kResourceExhausted,
                "shared memory of " + std::to_string(bytes) + " bytes for the collectives: " + std::strerror(errno));
  }
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (base == MAP_FAILED) {
    throw Error(ErrorCode::kResourceExhausted, std::string("mapping the collectives' memory: ") + std::strerror(errno));
  }
  auto* header = new (base) Header{};
  header->magic = kMagic;
  header->size = static_cast<std::uint64_t>(size);
  header->part_bytes = part_bytes;
  return CollectiveSegment(std::move(fd), static_cast<std::byte*>(base), bytes);
}

CollectiveSegment CollectiveSegment::Attach(int fd) {
  struct stat file {};
  if (::fstat(fd, &file) != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "the collectives' descriptor " + std::to_string(fd) + ": " + std::strerror(errno));
  }
  const auto bytes = static_cast<std::size_t>(file.st_size);
  if (bytes < sizeof(Header)) {
    throw Error(ErrorCode::kCorrupt, "the collectives' memory has " + std::to_string(bytes) + " bytes, expected " +
                                         std::to_string(sizeof(Header)) + " at least");
  }
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) {
    throw Error(ErrorCode::kResourceExhausted, std::string("mapping the collectives' memory: ") + std::strerror(errno));
  }
  CollectiveSegment segment(UniqueFd(), static_cast<std::byte*>(base), bytes);
  const Header& header = segment.header();
  const bool sound = header.magic == kMagic && header.size >= 1 && header.size <= kMaxRanks &&
                     bytes == sizeof(Header) + 2 * header.size * header.part_bytes;
  if (!sound) throw Error(ErrorCode::kCorrupt, "the collectives' descriptor is not a segment of this build's layout");
  return segment;
}

CollectiveSegment::CollectiveSegment(CollectiveSegment&& other) noexcept
    : fd_(std::move(other.fd_)), base_(std::exchange(other.base_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

CollectiveSegment::~CollectiveSegment() {
  if (base_ != nullptr) ::munmap(base_, bytes_);
}

int CollectiveSegment::size() const { return static_cast<int>(header().size); }
std::size_t CollectiveSegment::part_bytes() const { return header().part_bytes; }

std::span<float> CollectiveSegment::part(int rank, std::uint32_t generation) const {
  const std::size_t index = static_cast<std::size_t>(rank) * 2 + generation % 2;
  std::byte* begin = base_ + sizeof(Header) + index * part_bytes();
  return {reinterpret_cast<float*>(begin), part_bytes() / sizeof(float)};
}

SharedMemoryCollective::SharedMemoryCollective(CollectiveSegment& segment, int rank, std::chrono::milliseconds timeout)
    : segment_(segment), rank_(rank), timeout_(timeout) {
  if (rank < 0 || rank >= segment.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                "rank " + std::to_string(rank) + " of a group of " + std::to_string(segment.size()));
  }
  std::int32_t nobody = 0;
  auto& slot = segment_.header().ranks[static_cast<std::size_t>(rank)];
  if (!slot.pid.compare_exchange_strong(nobody, ::getpid())) {
    throw Error(ErrorCode::kFailedPrecondition,
                "rank " + std::to_string(rank) + " of the group is taken by process " + std::to_string(nobody));
  }
}

SharedMemoryCollective::~SharedMemoryCollective() {
  std::uint32_t whole = 0;
  segment_.header().broken.compare_exchange_strong(whole, static_cast<std::uint32_t>(rank_) + 1);
}

void SharedMemoryCollective::AllReduceSum(std::span<float> values) {
  const std::size_t step = segment_.part_bytes() / sizeof(float);
  for (std::size_t begin = 0; begin < values.size(); begin += step) {
    const std::span<float> now = values.subspan(begin, std::min(step, values.size() - begin));
    Exchange(Operation::kAllReduceSum, now);
    std::ranges::copy(segment_.part(0, generation_).first(now.size()), now.begin());
    for (int peer = 1; peer < size(); ++peer) {
      const float* theirs = segment_.part(peer, generation_).data();
      for (std::size_t i = 0; i < now.size(); ++i) now[i] += theirs[i];
    }
  }
}

void SharedMemoryCollective::AllGather(std::span<const float> mine, std::span<float> all) {
  LAYERCAST_CHECK(all.size() == mine.size() * static_cast<std::size_t>(size()));
  const std::size_t step = segment_.part_bytes() / sizeof(float);
  for (std::size_t begin = 0; begin < mine.size(); begin += step) {
    const std::span<const float> now = mine.subspan(begin, std::min(step, mine.size() - begin));
    Exchange(Operation::kAllGather, now);
    for (int peer = 0; peer < size(); ++peer) {
      const auto theirs = segment_.part(peer, generation_).first(now.size());
      std::ranges::copy(
          theirs, all.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(peer) * mine.size() + begin));
    }
  }
}

void SharedMemoryCollective::Exchange(Operation operation, std::span<const float> mine) {
  const Deadline deadline = Deadline::After(timeout_);
  auto& header = segment_.header();
  auto& slot = header.ranks[static_cast<std::size_t>(rank_)];
  ++generation_;
  std::ranges::copy(mine, segment_.part(rank_, generation_).begin());
  slot.operation[generation_ % 2].store(static_cast<std::uint32_t>(operation), std::memory_order_relaxed);
  slot.floats[generation_ % 2].store(mine.size(), std::memory_order_relaxed);
  // Sequentially consistent, like the sleeper's steps in Sleep: either it sees our arrival, or we see that it sleeps.
  slot.arrived.store(generation_);
  if (slot.sleepers.load() != 0) Futex(slot.arrived, FUTEX_WAKE, kMaxRanks, nullptr);
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank_) continue;
    WaitFor(peer, operation, deadline);
    auto& theirs = header.ranks[static_cast<std::size_t>(peer)];
    if (theirs.operation[generation_ % 2].load(std::memory_order_relaxed) != static_cast<std::uint32_t>(operation) ||
        theirs.floats[generation_ % 2].load(std::memory_order_relaxed) != mine.size()) {
      Fail(peer, "called another operation, or with another size, than this rank's", operation, false);
    }
  }
}

bool SharedMemoryCollective::Arrived(int peer) const {
  const std::uint32_t arrived = segment_.header().ranks[static_cast<std::size_t>(peer)].arrived.load();
  return static_cast<std::int32_t>(arrived - generation_) >= 0;  // counts wrap
}

void SharedMemoryCollective::WaitFor(int peer, Operation operation, const Deadline& deadline) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (Arrived(peer)) return;
    Pause();
  }
  auto& header = segment_.header();
  auto& slot = header.ranks[static_cast<std::size_t>(peer)];
  for (;;) {
    Sleep(peer);
    // Looked at before `arrived`: a peer that came, and left or died right after, has come.
    const std::uint32_t broken = header.broken.load();
    const int pid = slot.pid.load();
    const bool dead = pid != 0 && IsDead(pid);
    if (Arrived(peer)) return;
    if (dead) Fail(peer, "has died (process " + std::to_string(pid) + ")", operation, false);
    if (broken != 0) Fail(static_cast<int>(broken) - 1, "has left the group", operation, false);
    if (deadline.Passed()) {
      Fail(peer, "did not come within " + std::to_string(timeout_.count()) + " ms", operation, true);
    }
  }
}

// Until the peer arrives, or a nap is over.
void SharedMemoryCollective::Sleep(int peer) {
  auto& slot = segment_.header().ranks[static_cast<std::size_t>(peer)];
  const std::uint32_t seen = slot.arrived.load();
  slot.sleepers.fetch_add(1);
  if (!Arrived(peer)) {
    const timespec nap{0, std::chrono::nanoseconds(kNap).count()};
    Futex(slot.arrived, FUTEX_WAIT, seen, &nap);  // returns at once if `arrived` is no longer `seen`
  }
  slot.sleepers.fetch_sub(1);
}

void SharedMemoryCollective::Fail(int peer, std::string_view what, Operation operation, bool timed_out) {
  std::uint32_t whole = 0;
  segment_.header().broken.compare_exchange_strong(whole, static_cast<std::uint32_t>(peer) + 1);
  std::string message = "rank " + std::to_string(rank_) + ", " +
                        (operation == Operation::kAllReduceSum ? "all_reduce" : "all_gather") + " number " +
                        std::to_string(generation_) + ": rank " + std::to_string(peer) + " ";
  message += what;
  throw Error(timed_out ? ErrorCode::kDeadlineExceeded : ErrorCode::kUnavailable, message);
}

}  // namespace layercast
