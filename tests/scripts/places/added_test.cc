// One more of each kind of thing, which add_one_of_each.py has added to a copy of the tree, at work: each does what its
// sibling does. Built in that copy alone, by `scripts/nightly places`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "engine_side/server/group/reload_request.h"
#include "layercast/model/config.h"
#include "layercast/model/registry.h"
#include "layercast/publisher.h"
#include "src/transport/zmq/zmq_messages.h"
#include "tests/support/reload/receiver_rig.h"

namespace layercast {
namespace {

using testing::Differences;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::ReceiverRig;

TEST(Added, ATransportBringsWhatIsPublished) {
  ReceiverRig rig;
  const testing::Weights weights = rig.Version(1);
  Publisher publisher({.channels = {"twin"}});
  (void)publisher.Publish(
      {.lineage = "run", .step = 1},
      {.specs = testing::SpecsOf(weights), .walk = [&](std::span<const std::string>) { return weights.Stream(); }});
  rig.receiver->SetChannel("twin");
  EXPECT_EQ(rig.receiver->ReloadWeights(FromPublisher(publisher.endpoint())).channel, "twin");
  EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(weights)), IsEmpty());
}

TEST(Added, AMessageIsReadAsItWasWritten) {
  using zmq_channel::Twin;
  const Twin read = Decode<Twin>(Encode(Twin{1, 1ULL << 40, 77}));
  EXPECT_EQ(read.ticket, 1U);
  EXPECT_EQ(read.offset, 1ULL << 40);
  EXPECT_EQ(read.bytes, 77U);
}

TEST(Added, ASourceBringsWhatItsSiblingDoes) {
  ReceiverRig rig;
  rig.receiver->ReloadWeights(FromDummy(7));
  const testing::ServedBytes seven = rig.engine.Served();
  rig.receiver->ReloadWeights(FromTwin(8));
  EXPECT_THAT(Differences(rig.engine.Served(), seven), Not(IsEmpty()));
  EXPECT_EQ(rig.receiver->ReloadWeights(SourceFromJson({{"twin", 7}}, 0)).version.lineage, "twin");
  EXPECT_THAT(Differences(rig.engine.Served(), seven), IsEmpty());
}

TEST(Added, ACommitPolicyWritesNothingBeforeTheCommitAndThenAll) {
  ReceiverRig rig({.recipe = "fp8_per_channel"}, true, false, CommitPolicyNamed("twin"));
  const testing::Weights weights = rig.Version(1);
  const testing::ServedBytes before = rig.engine.Served();
  rig.receiver->Stage(testing::EagerSource(weights));
  EXPECT_THAT(Differences(rig.engine.Served(), before), IsEmpty());
  rig.receiver->Commit();
  EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(weights)), IsEmpty());
}

// All parameters of a tree, by full name.
void Collect(const Module& module, const std::string& path, std::map<std::string, std::string>& out) {
  for (const Parameter& parameter : module.parameters()) {
    out[path + parameter.spec.name] = Describe(parameter.spec);
  }
  for (const auto& [name, child] : module.children()) Collect(*child, path + name + ".", out);
}

TEST(Added, AModelFamilyHasTheTreeOfItsSibling) {
  const auto tree_of = [](const std::string& family, const std::string& model_type) {
    const auto tree = ModelRegistry::Builtin().Build(
        ModelConfig::Parse("{\"architectures\": [\"" + family + "\"], \"model_type\": \"" + model_type + R"(",
            "vocab_size": 100, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "attention_bias": true, "torch_dtype": "bfloat16"})"),
        {});
    EXPECT_EQ(tree->class_name(), family);
    std::map<std::string, std::string> parameters;
    Collect(*tree, "", parameters);
    return parameters;
  };
  const auto twin = tree_of("TwinForCausalLM", "twin");
  EXPECT_FALSE(twin.empty());
  EXPECT_EQ(twin, tree_of("LlamaForCausalLM", "llama"));
}

TEST(Added, ARecipeMakesTheBytesOfItsSibling) {
  ReceiverRig twin({.recipe = "fp8_per_twin"});
  ReceiverRig sibling({.recipe = "fp8_per_channel"});
  const testing::Weights weights = twin.Version(1);
  twin.receiver->ReloadWeights(testing::EagerSource(weights));
  sibling.receiver->ReloadWeights(testing::EagerSource(weights));
  EXPECT_THAT(Differences(twin.engine.Served(), sibling.engine.Served()), IsEmpty());
  EXPECT_THAT(Differences(twin.engine.Served(), twin.Expected(weights)), IsEmpty());
}

}  // namespace
}  // namespace layercast
