// Adapters by way of a publisher: they land as from their folder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>

#include "layercast/adapters/adapter_receiver.h"
#include "layercast/adapters/adapter_weights.h"
#include "layercast/error.h"
#include "layercast/publisher.h"
#include "tests/engine_side/adapters/load/adapter_models.h"
#include "tests/engine_side/adapters/load/adapter_rig.h"
#include "tests/support/error_of.h"

namespace layercast {
namespace {

using testing::AdapterOnDisk;
using ::testing::AllOf;
using testing::AsVector;
using testing::ErrorOf;
using ::testing::HasSubstr;
using testing::kLlama;
using testing::kPrefix;
using testing::Rank;

class PublishedAdapters : public ::testing::Test {
 protected:
  PublishedAdapters() {
    policy_.AddPair("self_attn.q_proj", 2, 64, 64);
    policy_.AddPair("mlp.down_proj", 2, 24, 64);
    critic_.AddPair("self_attn.v_proj", 2, 64, 32);
  }
  AdapterWeights Policy() { return AdapterWeights::FromFolder("policy", policy_.Write()); }
  AdapterWeights Critic() { return AdapterWeights::FromFolder("critic", critic_.Write()); }
  AdapterSource From(std::string name = "") {
    return {.path = {}, .publishers = {publisher_.endpoint()}, .name = std::move(name)};
  }

  AdapterOnDisk policy_, critic_;
  Publisher publisher_{PublisherOptions{}};
};

TEST_F(PublishedAdapters, ComeAsFromTheirFolder) {
  for (const PublishMode mode : {PublishMode::kSnapshot, PublishMode::kStream}) {
    for (const bool layer_order : {false, true}) {
      if (layer_order && mode == PublishMode::kSnapshot) continue;
      SCOPED_TRACE(layer_order);
      static std::uint64_t step = 0;
      const auto published = publisher_.Publish(
          {.lineage = "run", .step = ++step, .mode = mode, .layer_order = layer_order}, Together({Policy(), Critic()}));
      for (int rank = 0; rank < 2; ++rank) {
        const ParallelConfig parallel{.tp_rank = rank, .tp_size = mode == PublishMode::kSnapshot ? 2 : 1};
        if (rank >= parallel.tp_size) break;
        Rank from_disk(kLlama, parallel), engine(kLlama, parallel);
        const LoadedAdapter cold = from_disk.Load(policy_.Write());
        const LoadedAdapter loaded = engine.Load(From("policy"));
        EXPECT_EQ(loaded.version, published.version());
        EXPECT_EQ(loaded.digest, cold.digest);
        EXPECT_EQ(loaded.report.bytes, loaded.report.bytes_total);
        for (const char* buffer : {"self_attn.qkv_proj.q_proj_lora_B", "mlp.down_proj.lora_A"}) {
          EXPECT_EQ(AsVector(engine.Values(buffer)), AsVector(from_disk.Values(buffer)));
        }
      }
    }
  }
}

TEST_F(PublishedAdapters, OneVersionAfterAnotherOfTheSameFormFillsTheSlot) {
  Rank engine(kLlama);
  for (std::uint64_t step = 1; step <= 3; ++step) {
    AdapterOnDisk policy(R"({"peft_type": "LORA", "r": 2, "lora_alpha": )" + std::to_string(step) + "}");
    policy.Add(kPrefix + "self_attn.q_proj.lora_A.weight", {2, 64}, static_cast<float>(step));
    policy.Add(kPrefix + "self_attn.q_proj.lora_B.weight", {64, 2}, static_cast<float>(step));
    publisher_.Publish({.lineage = "run", .step = step},
                       Together({AdapterWeights::FromFolder("policy", policy.Write())}));
    Rank cold(kLlama);
    const LoadedAdapter from_disk = cold.Load(policy.Write()), loaded = engine.Load(From());
    EXPECT_EQ(loaded.version.step, step);
    EXPECT_EQ(loaded.digest, from_disk.digest);  // scales too
    EXPECT_EQ(AsVector(engine.Values("self_attn.qkv_proj.q_proj_lora_B")),
              AsVector(cold.Values("self_attn.qkv_proj.q_proj_lora_B")));
    // What cannot be loaded leaves nothing behind that the next version would trip over.
    EXPECT_THAT(ErrorOf([&] { engine.Load(From("other")); }), HasSubstr("'policy'"));
  }
}

TEST_F(PublishedAdapters, AreFoundByName) {
  publisher_.Publish({.lineage = "run", .step = 1}, Together({Policy()}));
  EXPECT_EQ(Rank(kLlama).Load(From()).name, "policy");
  publisher_.Publish({.lineage = "run", .step = 2}, Together({Policy(), Critic()}));
  EXPECT_THAT(ErrorOf([&] { Rank(kLlama).Load(From()); }, ErrorCode::kInvalidArgument),
              AllOf(HasSubstr("'critic'"), HasSubstr("'policy'")));
  EXPECT_THAT(ErrorOf([&] { Rank(kLlama).Load(From("other")); }, ErrorCode::kNotFound),
              HasSubstr("'critic', 'policy'"));
}

TEST_F(PublishedAdapters, SayWhichBaseTheyAreOf) {
  AdapterWeights adapter = Policy();
  adapter.base = Version{"base", 7, {1, 2}};
  publisher_.Publish({.lineage = "run", .step = 1}, Together({std::move(adapter)}));
  EXPECT_EQ(Rank(kLlama).Load(From()).base, (Version{"base", 7, {1, 2}}));
}

TEST_F(PublishedAdapters, WhatIsNoAdapterIsRefusedBeforeItIsPublished) {
  AdapterWeights twice = Policy();
  EXPECT_THAT(ErrorOf([&] { Together({Policy(), std::move(twice)}); }), HasSubstr("'policy' comes twice"));
  AdapterWeights slashed = Policy();
  slashed.name = "a/b";
  EXPECT_THAT(ErrorOf([&] { Together({std::move(slashed)}); }), HasSubstr("without slashes"));
  policy_.Remove(kPrefix + "mlp.down_proj.lora_B.weight");
  EXPECT_THAT(ErrorOf([&] { Together({Policy()}); }), HasSubstr("mlp.down_proj"));
}

}  // namespace
}  // namespace layercast
