// A version that several publishers stream between them, each its own part as its walk comes to it: engines serve what
// they would of one publisher's snapshot, whatever the layout and in whatever order the walks go.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/channels_here.h"
#include "tests/support/reload/sharded_trainer.h"

namespace layercast {
namespace {

using ::testing::AllOf;
using testing::Differences;
using testing::ErrorOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ReceiverRig;
using testing::RigOptions;
using testing::RowsOf;
using testing::ShardCase;
using testing::ShardCases;
using testing::ShardedTrainer;

// What a walk yields, all of it, with its memory.
std::vector<NamedTensor> All(const Weights& weights) {
  std::vector<NamedTensor> tensors;
  const auto walk = weights.walk({});
  while (std::optional<NamedTensor> tensor = walk->Next()) tensors.push_back(*std::move(tensor));
  return tensors;
}

// The same tensors in an order of the rank's own.
Weights Shuffled(int rank, Weights weights) {
  std::vector<NamedTensor> tensors = All(weights);
  std::shuffle(tensors.begin(), tensors.end(), std::mt19937(static_cast<unsigned>(rank)));
  return Weights::Once(weights.specs, MakeWeightsIterator(std::move(tensors)), weights.parts);
}

// Ranks of one engine, each in a thread: a stream is walked once for all of them.
class Ranks {
 public:
  Ranks(const RigOptions& options, int tp_size, bool spread_experts = false) {
    for (int rank = 0; rank < tp_size; ++rank) {
      RigOptions of_rank = options;
      of_rank.parallel = {.tp_rank = rank, .tp_size = tp_size};
      if (spread_experts) of_rank.parallel.SpreadExperts();
      rigs_.push_back(std::make_unique<ReceiverRig>(of_rank));
    }
  }

  std::vector<ReloadReport> Reload(const std::vector<std::string>& endpoints, const std::string& channel) {
    std::vector<ReloadReport> reports(rigs_.size());
    ForEach([&](std::size_t rank) {
      rigs_[rank]->receiver->SetChannel(channel);
      reports[rank] = rigs_[rank]->receiver->ReloadWeights(FromPublishers(endpoints));
    });
    return reports;
  }
  std::vector<std::string> Errors(const std::vector<std::string>& endpoints) {
    std::vector<std::string> errors(rigs_.size());
    ForEach([&](std::size_t rank) {
      errors[rank] = ErrorOf([&] { rigs_[rank]->receiver->ReloadWeights(FromPublishers(endpoints)); });
    });
    return errors;
  }
  const std::vector<std::unique_ptr<ReceiverRig>>& rigs() const { return rigs_; }

 private:
  void ForEach(const std::function<void(std::size_t rank)>& run) const {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < rigs_.size(); ++rank) {
      threads.emplace_back([&run, rank] { EXPECT_NO_THROW(run(rank)); });
    }
  }

  std::vector<std::unique_ptr<ReceiverRig>> rigs_;
};

class StreamedPartsTest : public ::testing::TestWithParam<std::size_t> {
 protected:
  const ShardCase& layout() const { return ShardCases()[GetParam()]; }

  void ExpectTaken(const RigOptions& options, int tp_size, const std::string& channel, bool spread_experts = false) {
    const testing::Weights weights = testing::RigWeights(options, 3);
    trainer_.Publish(weights, layout().layout, PublishMode::kStream, Shuffled);
    Ranks ranks(options, tp_size, spread_experts);
    const std::vector<ReloadReport> reports = ranks.Reload(trainer_.endpoints(), channel);
    for (std::size_t rank = 0; rank < reports.size(); ++rank) {
      const ReceiverRig& rig = *ranks.rigs()[rank];
      EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(weights)), IsEmpty())
          << options.recipe << " over " << channel << ", rank " << rank << " of " << tp_size;
      EXPECT_TRUE(rig.engine.CanariesAreAlive());
      EXPECT_EQ(reports[rank].version, reports.front().version);
      EXPECT_EQ(reports[rank].bytes, reports[rank].bytes_total);
      EXPECT_EQ(reports[rank].publishers.size(), static_cast<std::size_t>(layout().ranks));
    }
  }

 private:
  ShardedTrainer trainer_{layout().ranks};
};

TEST_P(StreamedPartsTest, AreServedAsTheWhole) {
  const std::vector<std::string> channels = testing::ChannelsHere();
  std::size_t next = 0;
  for (const std::string& recipe :
       testing::kUnderSanitizer
           ? std::vector<std::string>{"fp8_per_tensor"}
           : std::vector<std::string>{"none", "fp8_per_tensor", "fp8_per_channel", "fp8_per_block"}) {
    for (const int tp_size : {1, 2}) ExpectTaken({.recipe = recipe}, tp_size, channels[next++ % channels.size()]);
  }
}

TEST_P(StreamedPartsTest, OfExpertsAreServedAsTheWhole) {
  for (const bool spread : {false, true}) {
    const testing::ExpertForm form = spread ? testing::ExpertForm::kPerExpert : testing::ExpertForm::kStacked;
    ExpectTaken({.recipe = "fp8_per_channel", .experts = form}, 2, "inproc", spread);
    ExpectTaken({.recipe = "fp8_per_tensor", .experts = form}, 2, "inproc", spread);
  }
}

INSTANTIATE_TEST_SUITE_P(InEveryLayout, StreamedPartsTest, ::testing::Range(std::size_t{0}, ShardCases().size()),
                         [](const auto& index) { return std::string(ShardCases()[index.param].name); });

// Trainers whose ranks go in step (collectives between two tensors) would wait for ever for an engine that waits for
// one of them.
TEST(StreamedParts, TrainersThatGoInStepArePushedBackByNoRankAlone) {
  struct Step {
    std::mutex mutex;
    std::condition_variable changed;
    std::size_t at[2] = {0, 0};
  } step;
  const auto in_step = [&step](int rank, Weights weights) {
    std::vector<NamedTensor> tensors = All(weights);
    auto next = [&step, rank, tensors = std::move(tensors)]() -> std::optional<NamedTensor> {
      std::unique_lock lock(step.mutex);
      const std::size_t mine = step.at[rank]++;
      step.changed.notify_all();
      if (mine == tensors.size()) return std::nullopt;
      step.changed.wait(lock, [&] { return step.at[1 - rank] > mine; });
      return tensors[mine];
    };
    return Weights::Once(weights.specs, MakeWeightsIterator(std::move(next)), weights.parts);
  };
  ReceiverRig rig;
  const testing::Weights weights = rig.Version(2);
  ShardedTrainer trainer(2, {.stream_window_bytes = 1});
  trainer.Publish(weights, RowsOf, PublishMode::kStream, in_step);
  rig.receiver->ReloadWeights(FromPublishers(trainer.endpoints()));
  EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(weights)), IsEmpty());
}

// An engine's first rank has all of its own bytes before the trainer's second rank says anything of the rest.
TEST(StreamedParts, OfOneRankAfterTheOtherAreServedAsTheWhole) {
  for (const char* recipe : {"fp8_per_tensor", "fp8_per_channel"}) {
    std::promise<void> first_is_through;
    const auto in_turn = [&first_is_through](int rank, Weights shard) {
      auto next = [&first_is_through, rank, at = std::size_t{0},
                   tensors = All(shard)]() mutable -> std::optional<NamedTensor> {
        if (rank == 1 && at == 0) first_is_through.get_future().wait();
        if (at < tensors.size()) return tensors[at++];
        if (rank == 0) first_is_through.set_value();
        return std::nullopt;
      };
      return Weights::Once(shard.specs, MakeWeightsIterator(std::move(next)), shard.parts);
    };
    Ranks ranks({.recipe = recipe}, 2);
    const testing::Weights weights = ranks.rigs().front()->Version(5);
    ShardedTrainer trainer(2, {.stream_window_bytes = 1});
    trainer.Publish(weights, testing::ColumnsAndRows, PublishMode::kStream, in_turn);
    ranks.Reload(trainer.endpoints(), "inproc");
    for (const auto& rig : ranks.rigs()) {
      EXPECT_THAT(Differences(rig->engine.Served(), rig->Expected(weights)), IsEmpty()) << recipe;
    }
  }
}

// The other rows say what the scale is too, though an engine's first rank wants none of their bytes: it waits for them.
TEST(StreamedParts, AScaleOfTheWholeWaitsForPartsOfWhichNoByteIsWanted) {
  Ranks ranks({.recipe = "fp8_per_tensor"}, 2);
  const testing::Weights weights = ranks.rigs().front()->Version(4);
  std::string lacking;
  ShardedTrainer trainer(2);
  trainer.Publish(weights, RowsOf, PublishMode::kStream, [&](int rank, Weights shard) {
    std::vector<NamedTensor> tensors = All(shard);
    if (rank == 1) {
      const auto lost = std::ranges::find_if(
          tensors, [](const NamedTensor& tensor) { return tensor.name.find("q_proj.weight") != std::string::npos; });
      lacking = lost->name;
      tensors.erase(lost);
    }
    return Weights::Once(shard.specs, MakeWeightsIterator(std::move(tensors)), shard.parts);
  });
  for (const std::string& error : ranks.Errors(trainer.endpoints())) {
    EXPECT_THAT(error, HasSubstr("the weights ended before 1 tensors were whole: '" + lacking + "'"));
  }
}

TEST(StreamedParts, WhatIsWrongIsNamedAndChangesNothing) {
  ReceiverRig rig;
  const testing::Weights served = rig.Version(1);
  rig.receiver->ReloadWeights(testing::EagerSource(served));
  const testing::Weights weights = rig.Version(2);
  const auto error_of = [&](const std::function<Weights(int rank, Weights)>& of_rank) {
    ShardedTrainer trainer(2);
    trainer.Publish(weights, RowsOf, PublishMode::kStream, of_rank);
    return ErrorOf([&] { rig.receiver->ReloadWeights(FromPublishers(trainer.endpoints())); });
  };
  EXPECT_THAT(error_of([](int /*rank*/, Weights shard) {
                std::vector<NamedTensor> tensors = All(shard);
                tensors.front().part->offsets[0] += 1;
                return Weights::Once(shard.specs, MakeWeightsIterator(std::move(tensors)), shard.parts);
              }),
              AllOf(HasSubstr("the source declared a part at ["), HasSubstr("and yielded a part at [")));
  EXPECT_THAT(error_of([](int rank, Weights shard) -> Weights {
                if (rank == 0) return shard;
                return Weights::Once(shard.specs, MakeWeightsIterator([]() -> std::optional<NamedTensor> {
                                       throw Error(ErrorCode::kUnavailable, "the second rank's gather failed");
                                     }),
                                     shard.parts);
              }),
              HasSubstr("the second rank's gather failed"));
  EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(served)), IsEmpty());
}

TEST(StreamedParts, OneThatIsLostInTheMiddleIsNamed) {
  std::promise<void> in_the_middle;
  std::promise<void> go_on;
  const auto stops = [&](int rank, Weights shard) {
    if (rank == 0) return shard;
    auto next = [&, at = std::size_t{0}, tensors = All(shard)]() mutable -> std::optional<NamedTensor> {
      if (at == 2) {
        in_the_middle.set_value();
        go_on.get_future().wait();
        throw Error(ErrorCode::kUnavailable, "this rank's process ends");  // where it has not yet
      }
      return at == tensors.size() ? std::nullopt : std::optional(tensors[at++]);
    };
    return Weights::Once(shard.specs, MakeWeightsIterator(std::move(next)), shard.parts);
  };
  ReceiverRig rig;
  ShardedTrainer trainer(2);
  trainer.Publish(rig.Version(2), RowsOf, PublishMode::kStream, stops);
  const std::vector<std::string> endpoints = trainer.endpoints();  // the last rank's first
  const std::jthread loses([&] {
    in_the_middle.get_future().wait();
    const std::jthread ends([&] { trainer.End(1); });
    go_on.set_value();
  });
  EXPECT_THAT(ErrorOf([&] { rig.receiver->ReloadWeights(FromPublishers(endpoints)); }), HasSubstr(endpoints[0]));
  EXPECT_FALSE(rig.receiver->version());
}

TEST(StreamedParts, AStreamAndASnapshotAreNotOneVersion) {
  const ReceiverRig rig;
  const testing::Weights weights = rig.Version(1);
  Publisher streams({.endpoint = "tcp://127.0.0.1:0"});
  Publisher holds({.endpoint = "tcp://127.0.0.1:0"});
  streams.Publish({.lineage = "run", .step = 1, .mode = PublishMode::kStream, .part = {0, 2}},
                  testing::ShardOf(weights, RowsOf, 0, 2));
  holds.Publish({.lineage = "run", .step = 1, .part = {1, 2}}, testing::ShardOf(weights, RowsOf, 1, 2));
  EXPECT_THAT(ErrorOf([&] { rig.receiver->ReloadWeights(FromPublishers({streams.endpoint(), holds.endpoint()})); }),
              HasSubstr("expected a stream or a snapshot of all publishers"));
}

TEST(StreamedParts, PartsAreDeclaredOfEachSpecOrOfNone) {
  Publisher publisher({.endpoint = "tcp://127.0.0.1:0"});
  const ReceiverRig rig;
  Weights shard = testing::ShardOf(rig.Version(1), RowsOf, 0, 2);
  shard.parts.pop_back();
  EXPECT_THAT(ErrorOf([&] {
                publisher.Publish({.lineage = "run", .step = 1, .mode = PublishMode::kStream, .part = {0, 2}}, shard);
              }),
              HasSubstr("expected a part of each, or none"));
}

}  // namespace
}  // namespace layercast
