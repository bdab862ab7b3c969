#include "engine_side/engine/ranks/collective_segment.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <new>
#include <string>
#include <utility>

#include "layercast/error.h"
#include "src/base/check.h"
#include "src/base/exhausted.h"

namespace layercast {
namespace {

constexpr std::uint64_t kMagic = 0x6c63636f6c6c3032;  // "lccoll02"
constexpr int kMaxRanks = 64;
constexpr std::size_t kLanes = 3;
constexpr int kSpins = 500;                    // about ten microseconds, by which a peer on its own core may be late
constexpr std::chrono::milliseconds kNap{50};  // how often a sleeper checks that the peer still lives

std::size_t LaneOf(Operation operation) {
  switch (operation) {
    case Operation::kHandOver: return 1;
    case Operation::kTaken: return 2;
    default: return 0;
  }
}

std::string_view NameOf(Operation operation) {
  switch (operation) {
    case Operation::kAllReduceSum: return "all_reduce";
    case Operation::kAllGather: return "all_gather";
    case Operation::kHandOver: return "hand-over between stages";
    default: return "room for a hand-over between stages";
  }
}

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

long Futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value, const timespec* timeout) {
  static_assert(sizeof(word) == sizeof(std::uint32_t));
  return ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation, value, timeout, nullptr, 0);
}

// Whether the process is gone, or has ended and was not yet waited for by its parent.
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
  struct alignas(64) Lane {
    std::atomic<std::uint32_t> published;  // how often, modulo 2^32
    std::atomic<std::uint32_t> sleepers;   // peers asleep on `published`
    // What was published last at even and at odd counts.
    std::array<std::atomic<std::uint32_t>, 2> operation;
    std::array<std::atomic<std::uint64_t>, 2> floats;
  };
  struct Rank {
    std::atomic<std::int32_t> pid;  // 0: not attached yet
    std::array<Lane, kLanes> lanes;
  };
  Lane& lane(int rank, Operation operation) { return ranks[static_cast<std::size_t>(rank)].lanes[LaneOf(operation)]; }
  static std::size_t BytesOf(std::uint64_t size, std::uint64_t part_bytes) {
    return sizeof(Header) + 2 * kLanes * size * part_bytes;
  }

  std::uint64_t magic;
  std::uint64_t size;
  std::uint64_t part_bytes;
  std::atomic<std::uint32_t> broken;  // 1 + the rank at fault; 0: not broken
  std::array<Rank, kMaxRanks> ranks;
};

CollectiveSegment CollectiveSegment::Create(int size, std::size_t part_bytes) {
  if (size < 1 || size > kMaxRanks) {
    throw Error(ErrorCode::kInvalidArgument, "a group of " + std::to_string(size) +
                                                 " ranks on one host: expected 1 to " + std::to_string(kMaxRanks));
  }
  part_bytes = (part_bytes + 63) / 64 * 64;
  const std::size_t bytes = Header::BytesOf(static_cast<std::uint64_t>(size), part_bytes);
  UniqueFd fd(::memfd_create("layercast-collective", MFD_CLOEXEC));
  if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    throw SystemError(errno, ErrorCode::kResourceExhausted, "shared memory for the collectives", bytes);
  }
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (base == MAP_FAILED) {
    throw SystemError(errno, ErrorCode::kResourceExhausted, "mapping the collectives' memory", bytes);
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
    throw SystemError(errno, ErrorCode::kResourceExhausted, "mapping the collectives' memory", bytes);
  }
  CollectiveSegment segment(UniqueFd(), static_cast<std::byte*>(base), bytes);
  const Header& header = segment.header();
  const bool sound = header.magic == kMagic && header.size >= 1 && header.size <= kMaxRanks &&
                     bytes == Header::BytesOf(header.size, header.part_bytes);
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

std::span<float> CollectiveSegment::part(int rank, std::size_t lane, std::uint32_t number) const {
  const std::size_t index = (static_cast<std::size_t>(rank) * kLanes + lane) * 2 + number % 2;
  std::byte* begin = base_ + sizeof(Header) + index * part_bytes();
  return {reinterpret_cast<float*>(begin), part_bytes() / sizeof(float)};
}

SegmentSeat::SegmentSeat(CollectiveSegment& segment, int rank) : segment_(segment), rank_(rank) {
  if (rank < 0 || rank >= segment.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                "rank " + std::to_string(rank) + " of a group of " + std::to_string(segment.size()));
  }
  std::int32_t nobody = 0;
  auto& pid = segment_.header().ranks[static_cast<std::size_t>(rank)].pid;
  if (!pid.compare_exchange_strong(nobody, ::getpid())) {
    throw Error(ErrorCode::kFailedPrecondition,
                "the rank's seat in the group is taken by process " + std::to_string(nobody));
  }
}

SegmentSeat::~SegmentSeat() {
  std::uint32_t whole = 0;
  segment_.header().broken.compare_exchange_strong(whole, static_cast<std::uint32_t>(rank_) + 1);
}

std::uint32_t SegmentSeat::Publish(Operation operation, std::span<const float> mine) {
  LAYERCAST_CHECK(mine.size() <= part_floats());
  auto& lane = segment_.header().lane(rank_, operation);
  const std::uint32_t number = lane.published.load(std::memory_order_relaxed) + 1;  // no other rank writes it
  std::ranges::copy(mine, segment_.part(rank_, LaneOf(operation), number).begin());
  lane.operation[number % 2].store(static_cast<std::uint32_t>(operation), std::memory_order_relaxed);
  lane.floats[number % 2].store(mine.size(), std::memory_order_relaxed);
  // Sequentially consistent, like the sleeper's steps in Sleep: either it sees our arrival, or we see that it sleeps.
  lane.published.store(number);
  if (lane.sleepers.load() != 0) Futex(lane.published, FUTEX_WAKE, kMaxRanks, nullptr);
  return number;
}

std::span<const float> SegmentSeat::Read(int peer, const Meeting& meeting, std::size_t floats) {
  Await(peer, meeting);
  const auto& lane = segment_.header().lane(peer, meeting.operation);
  const std::size_t index = meeting.number % 2;
  if (lane.operation[index].load(std::memory_order_relaxed) != static_cast<std::uint32_t>(meeting.operation) ||
      lane.floats[index].load(std::memory_order_relaxed) != floats) {
    Fail(peer, "called another operation, or with another size, than this rank's", meeting, false);
  }
  return segment_.part(peer, LaneOf(meeting.operation), meeting.number).first(floats);
}

bool SegmentSeat::Arrived(int peer, const Meeting& meeting) const {
  const std::uint32_t published = segment_.header().lane(peer, meeting.operation).published.load();
  return static_cast<std::int32_t>(published - meeting.number) >= 0;  // counts wrap around
}

void SegmentSeat::Await(int peer, const Meeting& meeting) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (Arrived(peer, meeting)) return;
    Pause();
  }
  auto& header = segment_.header();
  for (;;) {
    Sleep(peer, meeting);
    // These are read before the check for arrival: a peer that published, and left or died right after, has arrived.
    const std::uint32_t broken = header.broken.load();
    const int pid = header.ranks[static_cast<std::size_t>(peer)].pid.load();
    const bool dead = pid != 0 && IsDead(pid);
    if (Arrived(peer, meeting)) return;
    if (dead) Fail(peer, "has died (process " + std::to_string(pid) + ")", meeting, false);
    if (broken != 0) Fail(static_cast<int>(broken) - 1, "has left the group", meeting, false);
    if (meeting.deadline.Passed()) {
      Fail(peer, "did not come within " + std::to_string(meeting.timeout.count()) + " ms", meeting, true);
    }
  }
}

// Sleeps until the peer publishes, for one nap at most.
void SegmentSeat::Sleep(int peer, const Meeting& meeting) {
  auto& lane = segment_.header().lane(peer, meeting.operation);
  const std::uint32_t seen = lane.published.load();
  lane.sleepers.fetch_add(1);
  if (!Arrived(peer, meeting)) {
    const timespec nap{0, std::chrono::nanoseconds(kNap).count()};
    Futex(lane.published, FUTEX_WAIT, seen, &nap);  // returns at once if it is no longer `seen`
  }
  lane.sleepers.fetch_sub(1);
}

void SegmentSeat::Fail(int peer, std::string_view what, const Meeting& meeting, bool timed_out) {
  std::uint32_t whole = 0;
  segment_.header().broken.compare_exchange_strong(whole, static_cast<std::uint32_t>(peer) + 1);
  std::string message(NameOf(meeting.operation));
  message += " number " + std::to_string(meeting.number) + ": rank " + std::to_string(peer) + " ";
  message += what;
  throw Error(timed_out ? ErrorCode::kDeadlineExceeded : ErrorCode::kUnavailable, message);
}

}  // namespace layercast
