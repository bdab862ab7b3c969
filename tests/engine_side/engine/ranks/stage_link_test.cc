// What every link between pipeline stages promises, held against each kind of it: the floats that were sent, in order,
// lane by lane; whom a wait is for when it ends without.
#include "engine_side/engine/ranks/stage_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine_side/engine/ranks/shared_memory_collective.h"
#include "engine_side/engine/ranks/shared_memory_stage_link.h"
#include "layercast/error.h"

namespace layercast {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

ParallelConfig PlaceOf(int rank, int tp_size, int pp_size) {
  return {.tp_rank = rank % tp_size, .tp_size = tp_size, .pp_rank = rank / tp_size, .pp_size = pp_size};
}

// Links of one kind: makes a rank's end, until the kind is gone.
class Kind {
 public:
  virtual ~Kind() = default;
  // Called once for each rank, on its thread.
  virtual std::unique_ptr<StageLink> Make(const ParallelConfig& parallel, milliseconds timeout) = 0;
};

class SharedMemoryKind final : public Kind {
 public:
  // Parts of 64 floats: most of what is sent takes several.
  explicit SharedMemoryKind(int ranks) : segment_(CollectiveSegment::Create(ranks, 256)) {}

  std::unique_ptr<StageLink> Make(const ParallelConfig& parallel, milliseconds timeout) override {
    struct Seated final : StageLink {
      Seated(CollectiveSegment& segment, const ParallelConfig& parallel, milliseconds timeout)
          : seat(segment, parallel.engine_rank()), link(seat, parallel, timeout) {}
      void Receive(std::span<float> values) override { link.Receive(values); }
      void Send(std::span<const float> values) override { link.Send(values); }
      SegmentSeat seat;
      SharedMemoryStageLink link;
    };
    return std::make_unique<Seated>(segment_, parallel, timeout);
  }

 private:
  CollectiveSegment segment_;
};

using MakeKind = std::function<std::unique_ptr<Kind>(int ranks)>;
struct KindParam {
  const char* name;
  MakeKind make;
};

class StageLinkTest : public testing::TestWithParam<KindParam> {
 protected:
  // One thread per rank. All links are there until all ranks are through: one that goes says that its rank has left,
  // and ends the waits of the stages behind it.
  void RunRanks(int tp_size, int pp_size, const std::function<void(StageLink&, const ParallelConfig&)>& body) {
    const std::unique_ptr<Kind> kind = GetParam().make(tp_size * pp_size);
    std::vector<std::unique_ptr<StageLink>> links(static_cast<std::size_t>(tp_size * pp_size));
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < tp_size * pp_size; ++rank) {
      threads.emplace_back([&, rank] {
        const ParallelConfig parallel = PlaceOf(rank, tp_size, pp_size);
        std::unique_ptr<StageLink>& link = links[static_cast<std::size_t>(rank)];
        link = kind->Make(parallel, seconds(60));
        body(*link, parallel);
      });
    }
  }

  static std::string RefusalOf(const std::function<void()>& call, ErrorCode code) {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      return error.what();
    }
    return "nothing was refused";
  }
};

std::vector<float> Message(int tp_rank, std::size_t round, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = 1000.0F * static_cast<float>(tp_rank) + static_cast<float>(round) + 0.25F * static_cast<float>(i % 91);
  }
  return values;
}

// Each stage adds one: what comes out says how many it went through, and in which lane.
TEST_P(StageLinkTest, HandsOnWhatWasSentInOrderFromEachRankToItsOwnOfTheNextStage) {
  const std::vector<std::size_t> counts = {1, 63, 64, 65, 1000, 0, 7};
  for (const auto& [tp_size, pp_size] : std::vector<std::pair<int, int>>{{1, 2}, {1, 4}, {2, 3}}) {
    RunRanks(tp_size, pp_size, [&](StageLink& link, const ParallelConfig& parallel) {
      for (std::size_t round = 0; round < 40; ++round) {
        std::vector<float> values = Message(parallel.tp_rank, round, counts[round % counts.size()]);
        std::vector<float> expected = values;
        for (float& value : expected) value += static_cast<float>(parallel.pp_rank);
        if (parallel.pp_rank > 0) {
          std::ranges::fill(values, -1.0F);
          link.Receive(values);
          ASSERT_EQ(values, expected);
        }
        if (parallel.pp_rank + 1 == parallel.pp_size) continue;
        for (float& value : values) value += 1.0F;
        link.Send(values);
        std::ranges::fill(values, -2.0F);  // they are the sender's again
      }
    });
  }
}

TEST_P(StageLinkTest, NamesTheRankThatSendsNothing) {
  const std::unique_ptr<Kind> kind = GetParam().make(4);
  const auto silent = kind->Make(PlaceOf(1, 2, 2), seconds(60));
  const auto waits = kind->Make(PlaceOf(3, 2, 2), milliseconds(50));
  std::vector<float> values(4);
  EXPECT_THAT(RefusalOf([&] { waits->Receive(values); }, ErrorCode::kDeadlineExceeded),
              testing::StartsWith("hand-over between stages number 1: rank 1 did not come within 50 ms"));
}

TEST_P(StageLinkTest, NamesTheRankThatTakesNothing) {
  const std::unique_ptr<Kind> kind = GetParam().make(2);
  const auto sends = kind->Make(PlaceOf(0, 1, 2), milliseconds(50));
  const auto idle = kind->Make(PlaceOf(1, 1, 2), seconds(60));
  const std::vector<float> long_one(1 << 20);
  EXPECT_THAT(RefusalOf([&] { sends->Send(long_one); }, ErrorCode::kDeadlineExceeded),
              testing::AllOf(testing::StartsWith("room for a hand-over"),
                             testing::HasSubstr("rank 1 did not come within 50 ms")));
}

TEST_P(StageLinkTest, TellsOfARankThatHasLeftButGivesWhatItHadSent) {
  const std::unique_ptr<Kind> kind = GetParam().make(2);
  const auto stays = kind->Make(PlaceOf(1, 1, 2), seconds(60));
  kind->Make(PlaceOf(0, 1, 2), seconds(60))->Send(std::vector<float>{4.0F});
  std::vector<float> values(1);
  stays->Receive(values);
  EXPECT_EQ(values, std::vector<float>{4.0F});
  EXPECT_THAT(RefusalOf([&] { stays->Receive(values); }, ErrorCode::kUnavailable),
              testing::HasSubstr("rank 0 has left the group"));
}

TEST_P(StageLinkTest, RefusesAMessageOfAnotherSize) {
  const std::unique_ptr<Kind> kind = GetParam().make(2);
  const auto sends = kind->Make(PlaceOf(0, 1, 2), seconds(60));
  const auto receives = kind->Make(PlaceOf(1, 1, 2), seconds(60));
  sends->Send(std::vector<float>(3));
  std::vector<float> values(4);
  EXPECT_THAT(RefusalOf([&] { receives->Receive(values); }, ErrorCode::kUnavailable),
              testing::HasSubstr("with another size"));
}

INSTANTIATE_TEST_SUITE_P(Kinds, StageLinkTest,
                         testing::Values(KindParam{
                             "SharedMemory", [](int ranks) { return std::make_unique<SharedMemoryKind>(ranks); }}),
                         [](const auto& kind) { return kind.param.name; });

// A rank of one stage that fails frees those of all stages, whatever they wait for.
TEST(SharedMemoryStageLink, EndsTheWaitsOfCollectivesInOtherStagesToo) {
  CollectiveSegment segment = CollectiveSegment::Create(4);
  SegmentSeat seat(segment, 2);
  SharedMemoryCollective second_stage(seat, PlaceOf(2, 2, 2), seconds(60));
  { const SegmentSeat first_stage(segment, 0); }
  std::vector<float> values(1);
  EXPECT_THAT([&] { second_stage.AllReduceSum(values); },
              testing::ThrowsMessage<Error>(testing::StartsWith("all_reduce number 1: rank 0 has left")));
}

// Real processes: fork is safe here, since no thread runs now.
TEST(SharedMemoryStageLink, WorksBetweenProcessesAndNoticesADeath) {
  CollectiveSegment segment = CollectiveSegment::Create(2);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    CollectiveSegment attached = CollectiveSegment::Attach(segment.fd());
    auto* seat = new SegmentSeat(attached, 0);  // never destroyed: it dies
    SharedMemoryStageLink(*seat, PlaceOf(0, 1, 2), seconds(30)).Send(std::vector<float>{1.0F, 2.0F});
    ::_exit(0);
  }
  SegmentSeat seat(segment, 1);
  SharedMemoryStageLink link(seat, PlaceOf(1, 1, 2), seconds(30));
  std::vector<float> values(2);
  link.Receive(values);
  EXPECT_EQ(values, (std::vector<float>{1.0F, 2.0F}));
  // The child is a zombie until it is waited for below.
  EXPECT_THAT([&] { link.Receive(values); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("rank 0 has died (process " + std::to_string(child))));
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace layercast
