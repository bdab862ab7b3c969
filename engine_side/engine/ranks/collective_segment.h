// The shared memory in which the ranks of one engine on one host meet, and a rank's seat in it, through which the rank
// publishes and waits for what others published. The engine's group of ranks makes the segment; every rank process
// attaches to it. Used by shared_memory_collective and shared_memory_stage_link. Torch-free.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "src/base/deadline.h"
#include "src/base/unique_fd.h"

namespace layercast {

// What a rank publishes. A rank has several lanes, one for each kind of exchange, and each lane has its own count.
enum class Operation : std::uint32_t { kAllReduceSum = 1, kAllGather, kHandOver, kTaken };

// The shared mapping: a memfd with a header, and two parts for each lane of each rank. Resource; move-only;
// thread-safe.
class CollectiveSegment {
 public:
  struct Header;

  // `part_bytes` is the most that a rank contributes at a time; longer operations are done in steps.
  static CollectiveSegment Create(int size, std::size_t part_bytes = std::size_t{1} << 18);
  // Maps the segment behind `fd`, which stays the caller's. Throws kCorrupt if it is not a segment.
  static CollectiveSegment Attach(int fd);

  CollectiveSegment(CollectiveSegment&& other) noexcept;
  CollectiveSegment& operator=(CollectiveSegment&& other) = delete;
  ~CollectiveSegment();

  // The descriptor to hand to the rank processes, by inheritance over fork or by SCM_RIGHTS. It is closed on exec
  // unless the caller clears that flag. -1 for an attached segment.
  int fd() const { return fd_.get(); }
  int size() const;
  std::size_t part_bytes() const;

 private:
  friend class SegmentSeat;
  CollectiveSegment(UniqueFd fd, std::byte* base, std::size_t bytes) : fd_(std::move(fd)), base_(base), bytes_(bytes) {}
  Header& header() const { return *reinterpret_cast<Header*>(base_); }
  std::span<float> part(int rank, std::size_t lane, std::uint32_t number) const;

  UniqueFd fd_;
  std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
};

// What a rank waits for: that a peer has published `number` times on the operation's lane. Value.
struct Meeting {
  Meeting(Operation what, std::uint32_t count, std::chrono::milliseconds patience)
      : operation(what), number(count), timeout(patience), deadline(Deadline::After(patience)) {}

  Operation operation;
  std::uint32_t number;  // modulo 2^32
  std::chrono::milliseconds timeout;
  Deadline deadline;
};

// One rank's seat. Resource; one thread only. The segment must outlive it. A wait spins for some microseconds, then
// sleeps on a futex. It ends when the peer has published; otherwise, when the peer dies, a rank leaves, or the
// meeting's timeout is over, it throws kUnavailable or kDeadlineExceeded, naming the rank that did not come, and breaks
// the segment: nobody waits in it any more.
class SegmentSeat {
 public:
  SegmentSeat(CollectiveSegment& segment, int rank);
  // Breaks the segment, so that no peer goes on waiting for a rank that has left.
  ~SegmentSeat();
  SegmentSeat(const SegmentSeat&) = delete;
  SegmentSeat& operator=(const SegmentSeat&) = delete;

  int rank() const { return rank_; }
  int size() const { return segment_.size(); }
  std::size_t part_floats() const { return segment_.part_bytes() / sizeof(float); }

  // Publishes `mine`, which is at most one part, on the operation's lane, and returns how often this rank has published
  // there. A lane's two parts alternate: this overwrites what was published two calls ago, so nobody may still be
  // reading that.
  std::uint32_t Publish(Operation operation, std::span<const float> mine);
  void Await(int peer, const Meeting& meeting);
  // Waits for what `peer` publishes as the meeting's number, and returns it. Throws kUnavailable, and breaks the
  // segment, if that is another operation or has another number of floats.
  std::span<const float> Read(int peer, const Meeting& meeting, std::size_t floats);

 private:
  bool Arrived(int peer, const Meeting& meeting) const;
  void Sleep(int peer, const Meeting& meeting);
  [[noreturn]] void Fail(int peer, std::string_view what, const Meeting& meeting, bool timed_out);

  CollectiveSegment& segment_;
  const int rank_;
};

}  // namespace layercast
