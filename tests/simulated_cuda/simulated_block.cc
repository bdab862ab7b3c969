#include "tests/simulated_cuda/simulated_block.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

#include "tests/simulated_cuda/fiber.h"

namespace simulated_cuda {
namespace {

constexpr unsigned kWarp = 32;

struct Lane;

// Where some threads wait until all of them have come.
struct Meeting {
  std::size_t members = 0;
  std::vector<Lane*> waiting;
};

// A warp, and what its lanes last passed. There are two sets of values, used in turn: a lane may pass its next one
// while others still read.
struct Warp {
  Meeting meeting;
  std::array<std::array<std::uint64_t, kWarp>, 2> values{};
};

// A thread of the block that runs, from its first step to its last.
struct Lane {
  Place place;
  unsigned number = 0;     // in the block
  unsigned exchanges = 0;  // so far
  Fiber* fiber = nullptr;
};

// One multiprocessor: runs one block at a time. Resource; one thread at a time.
class Multiprocessor {
 public:
  void Run(const Place& block, const std::function<void()>& thread) {
    Prepare(block);
    thread_ = &thread;
    while (failure_ == nullptr && Step()) {
    }
    if (failure_ != nullptr) std::rethrow_exception(failure_);
    if (ended_ < lanes_.size()) throw std::logic_error("threads of a block wait for each other in vain");
  }

  const Place& here() const { return running_->place; }

  void Await(Meeting& meeting) {
    meeting.waiting.push_back(running_);
    if (meeting.waiting.size() < meeting.members) return running_->fiber->Leave();
    meeting.waiting.pop_back();
    ready_.insert(ready_.end(), meeting.waiting.begin(), meeting.waiting.end());
    meeting.waiting.clear();
  }
  void AwaitBlock() { Await(block_); }

  // The values that all lanes of the running thread's warp pass.
  const std::array<std::uint64_t, kWarp>& Exchange(std::uint64_t value) {
    Warp& warp = warps_[running_->number / kWarp];
    if (warp.meeting.members < kWarp) throw std::logic_error("a warp with too few lanes exchanges values");
    auto& values = warp.values[running_->exchanges++ % 2];
    values[running_->number % kWarp] = value;
    Await(warp.meeting);
    return values;
  }
  unsigned lane() const { return running_->number % kWarp; }

 private:
  void Prepare(const Place& block) {
    const unsigned count = block.threads.x * block.threads.y * block.threads.z;
    lanes_.assign(count, {.place = block});
    warps_.assign((count + kWarp - 1) / kWarp, {});
    for (unsigned i = 0; i < count; ++i) {
      lanes_[i].number = i;
      lanes_[i].place.thread = {i % block.threads.x, i / block.threads.x % block.threads.y,
                                i / block.threads.x / block.threads.y};
      ++warps_[i / kWarp].meeting.members;
    }
    block_ = {.members = count, .waiting = {}};
    begun_ = ended_ = 0;
  }

  // Goes on with a thread that need not wait any more, or else with a new one. False if there is neither.
  bool Step() {
    if (!ready_.empty()) {
      running_ = ready_.front();
      ready_.pop_front();
      running_->fiber->Enter();
      return true;
    }
    if (begun_ == lanes_.size()) return false;
    if (idle_.empty()) idle_.push_back(fibers_.emplace_back(std::make_unique<Fiber>([this] { RunLanes(); })).get());
    Fiber* const fiber = idle_.back();
    idle_.pop_back();
    entered_ = fiber;
    fiber->Enter();
    return true;
  }

  // On a fiber: one thread after the other, for as long as none of them waits. Most kernels' never do, and need no
  // switch.
  void RunLanes() {
    while (true) {
      Fiber* const self = entered_;
      while (begun_ < lanes_.size() && failure_ == nullptr) {
        running_ = &lanes_[begun_++];
        running_->fiber = self;
        RunLane();
        if (!ready_.empty()) break;
      }
      idle_.push_back(self);
      self->Leave();
    }
  }

  void RunLane() {
    try {
      (*thread_)();
      ++ended_;
    } catch (...) {
      failure_ = std::current_exception();
    }
  }

  const std::function<void()>* thread_ = nullptr;
  std::vector<Lane> lanes_;
  std::vector<Warp> warps_;
  Meeting block_;
  std::deque<Lane*> ready_;
  std::size_t begun_ = 0;
  std::size_t ended_ = 0;
  Lane* running_ = nullptr;
  Fiber* entered_ = nullptr;
  std::exception_ptr failure_;
  std::vector<Fiber*> idle_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
};

thread_local Multiprocessor* running = nullptr;

class Running {
 public:
  explicit Running(Multiprocessor& multiprocessor) { running = &multiprocessor; }
  ~Running() { running = nullptr; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
};

// Those that no thread uses. They keep their fibers, which cost more than what runs on them.
class Idle {
 public:
  std::unique_ptr<Multiprocessor> Take() {
    const std::lock_guard lock(mutex_);
    if (all_.empty()) return std::make_unique<Multiprocessor>();
    auto taken = std::move(all_.back());
    all_.pop_back();
    return taken;
  }
  void Put(std::unique_ptr<Multiprocessor> multiprocessor) {
    const std::lock_guard lock(mutex_);
    all_.push_back(std::move(multiprocessor));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Multiprocessor>> all_;  // guarded by mutex_
};

Idle& IdleOnes() {
  static auto& idle = *new Idle;  // streams may end after everything else
  return idle;
}

}  // namespace

const Place& Here() { return running->here(); }
void AwaitBlock() { running->AwaitBlock(); }
std::uint64_t ExchangeXor(std::uint64_t value, unsigned mask) {
  const unsigned lane = running->lane();
  return running->Exchange(value)[lane ^ mask];
}
std::uint32_t LargestOfWarp(std::uint32_t value) {
  const auto& values = running->Exchange(value);
  return static_cast<std::uint32_t>(*std::max_element(values.begin(), values.end()));
}

void RunBlocks(const dim3& blocks, const dim3& threads, const std::function<void()>& thread) {
  std::unique_ptr<Multiprocessor> multiprocessor = IdleOnes().Take();
  const Running scope(*multiprocessor);
  Place place{{}, {}, threads, blocks};
  for (unsigned z = 0; z < blocks.z; ++z) {
    for (unsigned y = 0; y < blocks.y; ++y) {
      for (unsigned x = 0; x < blocks.x; ++x) {
        place.block = {x, y, z};
        multiprocessor->Run(place, thread);
      }
    }
  }
  IdleOnes().Put(std::move(multiprocessor));  // one whose block failed is destroyed: threads of it still wait
}

}  // namespace simulated_cuda
