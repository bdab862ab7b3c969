#include "engine_side/engine/ranks/shared_memory_collective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "layercast/error.h"

namespace layercast {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// One rank's end of a group that is a segment.
struct RankOf {
  RankOf(CollectiveSegment& segment, int rank, milliseconds timeout)
      : seat(segment, rank), collective(seat, {.tp_rank = rank, .tp_size = segment.size()}, timeout) {}
  SegmentSeat seat;
  SharedMemoryCollective collective;
};

// Runs one thread per rank on a segment.
void RunRanks(CollectiveSegment& segment, const std::function<void(SharedMemoryCollective&)>& body) {
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < segment.size(); ++rank) {
    threads.emplace_back([&, rank] {
      RankOf end(segment, rank, seconds(30));
      body(end.collective);
    });
  }
}

std::vector<float> ValuesOf(int rank, std::size_t count, std::size_t round) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = 0.1F * static_cast<float>(rank + 1) + 1.7F * static_cast<float>(i % 97) + static_cast<float>(round);
  }
  return values;
}

TEST(SharedMemoryCollective, SumsInRankOrderOnEveryRank) {
  for (const int size : {1, 2, 3, 4}) {
    CollectiveSegment segment = CollectiveSegment::Create(size, 256);  // 64 floats a step
    const std::vector<std::size_t> counts = {1, 63, 64, 65, 1000, 0, 7};
    RunRanks(segment, [&](SharedMemoryCollective& collective) {
      for (std::size_t round = 0; round < 40; ++round) {
        const std::size_t count = counts[round % counts.size()];
        std::vector<float> values = ValuesOf(collective.rank(), count, round);
        collective.AllReduceSum(values);
        std::vector<float> expected = ValuesOf(0, count, round);
        for (int peer = 1; peer < size; ++peer) {
          const std::vector<float> theirs = ValuesOf(peer, count, round);
          for (std::size_t i = 0; i < count; ++i) expected[i] += theirs[i];
        }
        ASSERT_EQ(values, expected);
      }
    });
  }
}

TEST(SharedMemoryCollective, GathersInRankOrder) {
  CollectiveSegment segment = CollectiveSegment::Create(3, 256);
  RunRanks(segment, [&](SharedMemoryCollective& collective) {
    for (const std::size_t count : {5UL, 64UL, 200UL}) {
      std::vector<float> all(3 * count);
      collective.AllGather(ValuesOf(collective.rank(), count, 1), all);
      std::vector<float> expected;
      for (int peer = 0; peer < 3; ++peer) {
        const auto theirs = ValuesOf(peer, count, 1);
        expected.insert(expected.end(), theirs.begin(), theirs.end());
      }
      ASSERT_EQ(all, expected);
    }
  });
}

TEST(SharedMemoryCollective, NamesTheRankThatDoesNotCome) {
  CollectiveSegment segment = CollectiveSegment::Create(3);
  std::string message;
  {
    RankOf zero(segment, 0, milliseconds(50));
    const RankOf two(segment, 2, milliseconds(50));
    std::vector<float> values(4);
    try {
      zero.collective.AllReduceSum(values);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded);
      message = error.what();
    }
  }
  EXPECT_THAT(message, testing::StartsWith("all_reduce number 1: rank 1 did not come within 50 ms"));
}

TEST(SharedMemoryCollective, TellsTheOthersThatARankHasLeft) {
  CollectiveSegment segment = CollectiveSegment::Create(2);
  RankOf stays(segment, 0, seconds(60));
  { const SegmentSeat leaves(segment, 1); }
  std::vector<float> values(1);
  EXPECT_THAT([&] { stays.collective.AllReduceSum(values); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("rank 1 has left the group")));
}

TEST(SharedMemoryCollective, RefusesRanksThatDisagreeOnTheOperation) {
  CollectiveSegment segment = CollectiveSegment::Create(2);
  std::vector<std::string> messages(2);
  RunRanks(segment, [&](SharedMemoryCollective& collective) {
    std::vector<float> values(static_cast<std::size_t>(3 + collective.rank()));
    try {
      collective.AllReduceSum(values);
    } catch (const Error& error) {
      messages[static_cast<std::size_t>(collective.rank())] = error.what();
    }
  });
  EXPECT_THAT(messages, testing::Contains(testing::HasSubstr("with another size")));
}

TEST(SharedMemoryCollective, RefusesARankTwiceAndARankBeyondTheGroup) {
  CollectiveSegment segment = CollectiveSegment::Create(2);
  const SegmentSeat one(segment, 1);
  EXPECT_THROW(SegmentSeat(segment, 1), Error);
  EXPECT_THROW(SegmentSeat(segment, 2), Error);
}

TEST(SharedMemoryCollective, RefusesADescriptorOfSomethingElse) {
  int pipe_ends[2];
  ASSERT_EQ(::pipe(pipe_ends), 0);
  EXPECT_THROW(CollectiveSegment::Attach(pipe_ends[0]), Error);
  ::close(pipe_ends[0]);
  ::close(pipe_ends[1]);
}

// Real processes: fork is safe here, since no thread runs now.
TEST(SharedMemoryCollective, OfMoreRanksThanAHostHoldsIsRefused) {
  EXPECT_NO_THROW(CollectiveSegment::Create(64));
  for (const int ranks : {0, 65}) {
    EXPECT_THAT([&] { CollectiveSegment::Create(ranks); },
                testing::ThrowsMessage<Error>(testing::HasSubstr("a group of " + std::to_string(ranks) +
                                                                 " ranks on one host: expected 1 to 64")));
  }
}

TEST(SharedMemoryCollective, WorksBetweenProcessesAndNoticesADeath) {
  CollectiveSegment segment = CollectiveSegment::Create(2);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    CollectiveSegment attached = CollectiveSegment::Attach(segment.fd());
    auto* end = new RankOf(attached, 1, seconds(30));  // never destroyed: it dies
    std::vector<float> values = {1.0F, 2.0F};
    end->collective.AllReduceSum(values);
    ::_exit(values == std::vector<float>{11.0F, 22.0F} ? 0 : 1);
  }
  RankOf end(segment, 0, seconds(30));
  std::vector<float> values = {10.0F, 20.0F};
  end.collective.AllReduceSum(values);
  EXPECT_EQ(values, (std::vector<float>{11.0F, 22.0F}));
  // The child is a zombie until it is waited for below.
  EXPECT_THAT([&] { end.collective.AllReduceSum(values); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("rank 1 has died (process " + std::to_string(child))));
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace layercast
