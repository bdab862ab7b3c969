// A version for all stages of a pipeline, or for none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "layercast/error.h"
#include "tests/support/reload/receiver_rig.h"

namespace layercast {
namespace {

using testing::Differences;
using testing::EagerSource;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ReceiverRig;
using testing::RigOptions;
using testing::Weights;

using Stages = std::vector<std::unique_ptr<ReceiverRig>>;

// What a host program does with the stages of its pipeline: on all or on none. What the last stage receives is given
// apart. Empty: all of them serve the version.
std::string ReloadAll(const Stages& stages, const Weights& weights, const Weights& of_the_last) {
  std::vector<Receiver*> committed;
  try {
    for (const auto& stage : stages) {
      stage->receiver->Stage(EagerSource(stage == stages.back() ? of_the_last : weights));
    }
    for (const auto& stage : stages) stage->receiver->Prepare();
    for (const auto& stage : stages) {
      stage->receiver->Commit();
      committed.push_back(stage->receiver.get());
    }
  } catch (const Error& error) {
    for (const auto& stage : stages) stage->receiver->Abort();
    for (Receiver* receiver : committed) EXPECT_TRUE(receiver->RollBack());
    return error.what();
  }
  return "";
}

void ExpectServed(const Stages& stages, std::uint32_t seed, const Version& version) {
  for (const auto& stage : stages) {
    EXPECT_THAT(Differences(stage->engine.Served(), stage->Expected(stage->Version(seed))), IsEmpty());
    EXPECT_EQ(*stage->receiver->version(), version);
    EXPECT_NO_THROW(stage->receiver->VerifyServed());
  }
}

// Where versions are staged, the last stage fails before any of them commits; where layers are written and undone,
// after the first one has. So it is with a draft model, which the last stage holds, as with its target.
void ExpectAllOrNone(bool draft, const std::string& tensor, const std::string& layer) {
  for (const CommitPolicy policy : {CommitPolicy::kStaged, CommitPolicy::kUndo}) {
    SCOPED_TRACE(CommitPolicyName(policy));
    Stages stages;
    for (int stage = 0; stage < 2; ++stage) {
      const RigOptions options{
          .recipe = "fp8_per_channel", .parallel = {.pp_rank = stage, .pp_size = 2}, .layers = 2, .draft = draft};
      stages.push_back(std::make_unique<ReceiverRig>(options, true, false, policy));
    }
    const auto weights = [&](std::uint32_t seed) { return stages[0]->Version(seed); };
    ASSERT_EQ(ReloadAll(stages, weights(1), weights(1)), "");
    const Version first = *stages[0]->receiver->version();
    Weights bad = weights(2);
    const std::uint16_t nan = 0x7FC0;
    std::memcpy(bad.bytes(testing::IndexOf(bad, tensor)).data(), &nan, sizeof(nan));
    EXPECT_THAT(ReloadAll(stages, weights(2), bad), HasSubstr(layer));
    ExpectServed(stages, 1, first);
    ASSERT_EQ(ReloadAll(stages, weights(3), weights(3)), "");
    ExpectServed(stages, 3, *stages[0]->receiver->version());
    EXPECT_EQ(stages[1]->engine.Served().contains("draft.fc.weight"), draft);
    EXPECT_FALSE(stages[0]->engine.Served().contains("draft.fc.weight"));
    EXPECT_EQ(stages[1]->engine.Served().contains("model.embed_tokens.weight"), draft);
  }
}

TEST(PipelineCommit, AllStagesServeTheOldVersionWhereOneOfThemFails) {
  ExpectAllOrNone(false, "model.layers.1.mlp.down_proj.weight", "model.layers.1.mlp.down_proj");
}

TEST(PipelineCommit, AllStagesServeTheOldVersionWhereTheDraftModelFails) {
  ExpectAllOrNone(true, "draft.fc.weight", "draft.fc");
}

}  // namespace
}  // namespace layercast
