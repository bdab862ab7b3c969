// A version that several publishers have between them: whatever way a trainer is sharded and an engine is, the engine
// serves what it would of one publisher, over every channel, and receives no byte more.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine_side/plan/load_plan.h"
#include "layercast/model/placement.h"
#include "layercast/publisher.h"
#include "tests/reload/receiver_rig.h"

namespace layercast {
namespace {

using testing::Differences;
using testing::ErrorOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ReceiverRig;
using testing::RigOptions;

// What of a tensor a trainer's rank holds, if anything.
using Layout = std::function<std::optional<Box>(const TensorSpec& spec, int rank, int ranks)>;

std::optional<Box> RowsOf(const TensorSpec& spec, int rank, int ranks) {  // as FSDP2 shards
  const std::int64_t chunk = (spec.shape[0] + ranks - 1) / ranks;
  const std::int64_t first = std::min(chunk * rank, spec.shape[0]);
  return Box::Slice(spec.shape, 0, first, std::min(chunk, spec.shape[0] - first));
}

// As Megatron does: layers are cut along what they write, or along what they read; the rest is alike on all ranks, and
// the first publishes it.
std::optional<Box> ColumnsAndRows(const TensorSpec& spec, int rank, int ranks) {
  const bool reads = spec.name.find("o_proj") != std::string::npos || spec.name.find("down_proj") != std::string::npos;
  if (spec.shape.size() == 1 && spec.name.find("bias") == std::string::npos) {
    return rank == 0 ? std::optional(Box::Whole(spec.shape)) : std::nullopt;
  }
  const std::size_t axis = reads ? spec.shape.size() - 1 : 0;
  const std::int64_t size = spec.shape[axis];
  return Box::Slice(spec.shape, axis, size * rank / ranks, size * (rank + 1) / ranks - size * rank / ranks);
}

// Pipeline stages, or experts, spread over ranks.
std::optional<Box> WholeByTurns(const TensorSpec& spec, int rank, int ranks) {
  const bool mine =
      std::hash<std::string>()(spec.name) % static_cast<std::size_t>(ranks) == static_cast<std::size_t>(rank);
  return mine ? std::optional(Box::Whole(spec.shape)) : std::nullopt;
}

// Both dimensions at once: 2 x 2 ranks.
std::optional<Box> Quarters(const TensorSpec& spec, int rank, int /*ranks*/) {
  if (spec.shape.size() < 2) return WholeByTurns(spec, rank, 4);
  Box box = Box::Whole(spec.shape);
  const std::size_t last = spec.shape.size() - 1;
  for (const auto& [axis, half] : {std::pair(last - 1, rank / 2), std::pair(last, rank % 2)}) {
    const std::int64_t cut = spec.shape[axis] * 3 / 7;
    box.begin[axis] = half == 0 ? 0 : cut;
    box.extent[axis] = half == 0 ? cut : spec.shape[axis] - cut;
  }
  return box;
}

// Element by element: slow, obvious.
std::vector<std::byte> Slice(const testing::Weights& weights, std::size_t tensor, const Box& box) {
  const TensorSpec& spec = weights.spec(tensor);
  const auto size = static_cast<std::size_t>(BitsPerElement(spec.dtype) / 8);
  const std::byte* from = weights.bytes(tensor).data();
  std::vector<std::byte> bytes(static_cast<std::size_t>(box.num_elements()) * size);
  std::byte* to = bytes.data();
  for (std::int64_t element = 0, end = spec.num_elements(); element < end; ++element, from += size) {
    bool inside = true;
    std::int64_t rest = element;
    for (std::size_t d = spec.shape.size(); d-- > 0; rest /= spec.shape[d]) {
      const std::int64_t index = rest % spec.shape[d];
      inside = inside && index >= box.begin[d] && index < box.begin[d] + box.extent[d];
    }
    if (!inside) continue;
    std::memcpy(to, from, size);
    to += size;
  }
  return bytes;
}

Weights ShardOf(const testing::Weights& weights, const Layout& layout, int rank, int ranks) {
  std::vector<NamedTensor> tensors;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const TensorSpec& spec = weights.spec(i);
    const std::optional<Box> box = layout(spec, rank, ranks);
    if (!box) continue;
    auto bytes = std::make_shared<const std::vector<std::byte>>(Slice(weights, i, *box));
    const Shape shape(box->extent.begin(), box->extent.begin() + box->rank);
    tensors.push_back(
        {.name = spec.name,
         .tensor = {.dtype = spec.dtype, .shape = shape, .data = bytes->data(), .device = {}},
         .owner = bytes,
         .part = TensorPart{.whole = spec.shape, .offsets = {box->begin.begin(), box->begin.begin() + box->rank}}});
  }
  return Weights::Once({}, MakeWeightsIterator(std::move(tensors)));
}

// A trainer of several ranks.
class Trainer {
 public:
  explicit Trainer(int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      publishers_.push_back(std::make_unique<Publisher>(PublisherOptions{.retained_versions = 1}));
    }
  }
  Trainer(const testing::Weights& weights, const Layout& layout, int ranks) : Trainer(ranks) {
    Publish(weights, layout);
  }
  void Publish(const testing::Weights& weights, const Layout& layout) {
    ++step_;
    const int ranks = static_cast<int>(publishers_.size());
    for (int rank = 0; rank < ranks; ++rank) {
      publishers_[static_cast<std::size_t>(rank)]->Publish({.lineage = "run", .step = step_, .part = {rank, ranks}},
                                                           ShardOf(weights, layout, rank, ranks));
    }
  }
  // The last first: ranks are the manifests', not the list's.
  std::vector<std::string> endpoints() const {
    std::vector<std::string> endpoints;
    for (auto publisher = publishers_.rbegin(); publisher != publishers_.rend(); ++publisher) {
      endpoints.push_back((*publisher)->endpoint());
    }
    return endpoints;
  }
  void End(int rank) { publishers_[static_cast<std::size_t>(rank)].reset(); }

 private:
  std::vector<std::unique_ptr<Publisher>> publishers_;
  std::uint64_t step_ = 0;
};

struct Case {
  const char* name;
  Layout layout;
  int ranks;
};

const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {{"Rows2", RowsOf, 2},
                                          {"Rows3", RowsOf, 3},
                                          {"ColumnsAndRows2", ColumnsAndRows, 2},
                                          {"Whole2", WholeByTurns, 2},
                                          {"Quarters", Quarters, 4}};
  return cases;
}

class PublishedPartsTest : public ::testing::TestWithParam<std::size_t> {
 protected:
  const Case& layout() const { return Cases()[GetParam()]; }

  void ExpectTaken(const RigOptions& options, const char* channel) {
    const testing::Weights weights = testing::RigWeights(options, 3);
    trainer_.Publish(weights, layout().layout);
    ReceiverRig rig(options);
    rig.receiver->SetChannel(channel);
    const ReloadReport report = rig.receiver->ReloadWeights(FromPublishers(trainer_.endpoints()));
    EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(weights)), IsEmpty()) << options.recipe << channel;
    EXPECT_TRUE(rig.engine.CanariesAreAlive());
    const LoadPlan whole =
        LoadPlan::Build(*testing::RigModel(options), Manifest::OfSpecs("run", 1, testing::SpecsOf(weights)));
    EXPECT_EQ(report.bytes, whole.placed_bytes());  // what it keeps, and nothing else
    EXPECT_EQ(report.bytes_total, whole.placed_bytes());
    EXPECT_THAT(report.out_of_order, IsEmpty());
    ASSERT_EQ(report.publishers.size(), static_cast<std::size_t>(layout().ranks));
    std::uint64_t bytes = 0;
    for (const PublisherShare& share : report.publishers) bytes += share.bytes;
    EXPECT_EQ(bytes, report.bytes);
    EXPECT_EQ(report.publishers.front().endpoint, trainer_.endpoints().back());
  }

 private:
  Trainer trainer_{layout().ranks};
};

TEST_P(PublishedPartsTest, AreServedAsTheWhole) {
  int next = 0;
  for (const std::string& recipe :
       testing::kUnderSanitizer
           ? std::vector<std::string>{"fp8_per_channel"}
           : std::vector<std::string>{"none", "fp8_per_tensor", "fp8_per_channel", "fp8_per_block"}) {
    for (const ParallelConfig& parallel : {ParallelConfig{}, ParallelConfig{0, 2}, ParallelConfig{1, 2}}) {
      const char* channels[] = {"inproc", "shm", "zmq"};
      ExpectTaken({.recipe = recipe, .parallel = parallel}, channels[next++ % 3]);
    }
  }
}

TEST_P(PublishedPartsTest, OfExpertsAreServedAsTheWholeByRanksThatHaveAPartOfEachOrSomeWhole) {
  using Form = testing::ExpertForm;
  for (const Form form : testing::kUnderSanitizer
                             ? std::vector<Form>{Form::kStacked}
                             : std::vector<Form>{Form::kPerExpert, Form::kStacked, Form::kTransposed}) {
    for (const bool expert_parallel : {false, true}) {
      ParallelConfig parallel{.tp_rank = 1, .tp_size = 2};
      if (expert_parallel) parallel.SpreadExperts();
      ExpectTaken({.recipe = "fp8_per_channel", .parallel = parallel, .experts = form}, "inproc");
      ExpectTaken({.recipe = "fp8_per_tensor", .parallel = parallel, .experts = form}, "zmq");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(InEveryLayout, PublishedPartsTest, ::testing::Range(std::size_t{0}, Cases().size()),
                         [](const auto& index) { return std::string(Cases()[index.param].name); });

TEST(PublishedParts, OneVersionAfterAnotherAndThenAWholeOneOfTheSameTensors) {
  const RigOptions options{.recipe = "fp8_per_channel"};
  ReceiverRig rig(options);
  for (const std::uint32_t seed : {1U, 2U}) {
    const testing::Weights weights = rig.Version(seed);
    const Trainer trainer(weights, seed == 1 ? RowsOf : Layout(ColumnsAndRows), 2);
    rig.receiver->ReloadWeights(FromPublishers(trainer.endpoints()));
    EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(weights)), IsEmpty());
  }
  const testing::Weights weights = rig.Version(3);
  rig.receiver->ReloadWeights(testing::EagerSource(weights));
  EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(weights)), IsEmpty());
}

TEST(PublishedParts, WhatIsWrongIsNamedAndChangesNothing) {
  ReceiverRig rig;
  const testing::Weights weights = rig.Version(1);
  rig.receiver->ReloadWeights(testing::EagerSource(weights));
  const Trainer trainer(rig.Version(2), RowsOf, 3);
  const std::vector<std::string> all = trainer.endpoints();
  const auto error_of = [&](std::vector<std::string> endpoints) {
    return ErrorOf([&] { rig.receiver->ReloadWeights(FromPublishers(std::move(endpoints))); });
  };
  EXPECT_THAT(error_of({all[0]}), HasSubstr("expected publishers of all of them, got 1 without ranks 0, 1"));
  EXPECT_THAT(error_of({all[0], all[1], all[1]}), HasSubstr("expected each part once"));
  EXPECT_THAT(error_of({}), HasSubstr("got none"));
  const Layout twice = [](const TensorSpec& spec, int /*rank*/, int /*ranks*/) { return Box::Whole(spec.shape); };
  const Trainer overlapping(rig.Version(2), twice, 2);
  EXPECT_THAT(error_of(overlapping.endpoints()), HasSubstr("expected every element of one of them"));
  const Layout holed = [](const TensorSpec& spec, int rank, int /*ranks*/) { return RowsOf(spec, rank, 3); };
  const Trainer with_hole(rig.Version(2), holed, 2);
  EXPECT_THAT(error_of(with_hole.endpoints()), HasSubstr("no publisher has"));
  EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(weights)), IsEmpty());
}

TEST(PublishedParts, OneOfThemThatIsGoneIsNamed) {
  ReceiverRig rig;
  Trainer trainer(rig.Version(2), RowsOf, 2);
  const std::vector<std::string> all = trainer.endpoints();
  rig.receiver->Stage(FromPublishers(all));
  rig.receiver->Abort();
  trainer.End(1);
  EXPECT_THAT(ErrorOf([&] { rig.receiver->ReloadWeights(FromPublishers(all)); }), HasSubstr(all[0]));
  EXPECT_FALSE(rig.receiver->version());
}

}  // namespace
}  // namespace layercast
