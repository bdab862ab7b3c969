// The collective of ranks on one host: each writes into its part of a shared mapping, all meet, all read.
// The engine's group of ranks makes the segment; every rank process attaches to it. Torch-free.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "engine_side/engine/collective.h"
#include "src/base/deadline.h"
#include "src/base/unique_fd.h"

namespace layercast {

// The shared mapping: a memfd with a header, and two parts per rank. Resource; move-only; thread-safe.
class CollectiveSegment {
 public:
  struct Header;

  // `part_bytes` is the most that one rank contributes at a time; longer operations go in steps.
  static CollectiveSegment Create(int size, std::size_t part_bytes = std::size_t{1} << 18);
  // Maps the segment behind `fd`, which stays the caller's. Throws kCorrupt if it is none.
  static CollectiveSegment Attach(int fd);

  CollectiveSegment(CollectiveSegment&& other) noexcept;
  CollectiveSegment& operator=(CollectiveSegment&& other) = delete;
  ~CollectiveSegment();

  // To hand to the rank processes (inherited over fork, or by SCM_RIGHTS). It is closed on exec unless the
  // caller clears that flag. -1 for an attached segment.
  int fd() const { return fd_.get(); }
  int size() const;
  std::size_t part_bytes() const;

 private:
  friend class SharedMemoryCollective;
  CollectiveSegment(UniqueFd fd, std::byte* base, std::size_t bytes) : fd_(std::move(fd)), base_(base), bytes_(bytes) {}
  Header& header() const { return *reinterpret_cast<Header*>(base_); }
  std::span<float> part(int rank, std::uint32_t generation) const;

  UniqueFd fd_;
  std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
};

// One rank's end. The segment outlives it. A wait spins for some microseconds, then sleeps on a futex; it ends
// when the peer comes, dies, or `timeout` is over.
class SharedMemoryCollective final : public Collective {
 public:
  SharedMemoryCollective(CollectiveSegment& segment, int rank, std::chrono::milliseconds timeout);
  // Breaks the group, so that no peer waits for a rank that has left.
  ~SharedMemoryCollective() override;

  int rank() const override { return rank_; }
  int size() const override { return segment_.size(); }
  void AllReduceSum(std::span<float> values) override;
  void AllGather(std::span<const float> mine, std::span<float> all) override;

 private:
  enum class Operation : std::uint32_t { kAllReduceSum = 1, kAllGather = 2 };

  // Publishes `mine` (at most one part) and returns when every rank has published its own of the same size.
  void Exchange(Operation operation, std::span<const float> mine);
  void WaitFor(int peer, Operation operation, const Deadline& deadline);
  void Sleep(int peer);
  [[noreturn]] void Fail(int peer, std::string_view what, Operation operation, bool timed_out);
  bool Arrived(int peer) const;

  CollectiveSegment& segment_;
  const int rank_;
  const std::chrono::milliseconds timeout_;
  // Counts exchanges. Parts alternate with it: a rank can run at most one exchange ahead of another, so the part it
  // fills is never one that somebody still reads, and one meeting per exchange is enough.
  std::uint32_t generation_ = 0;
};

}  // namespace layercast
