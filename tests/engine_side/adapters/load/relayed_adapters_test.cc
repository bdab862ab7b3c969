// Adapters by way of other engines, which serve on what they take: the publisher sends one copy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

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
using testing::Rank;

class RelayedAdapters : public ::testing::Test {
 protected:
  RelayedAdapters() {
    policy_.AddPair("self_attn.q_proj", 2, 64, 64);
    policy_.AddPair("mlp.down_proj", 2, 24, 64);
    critic_.AddPair("self_attn.v_proj", 2, 64, 32);
  }
  void PublishBoth(std::uint64_t step) {
    published_.push_back(publisher_.Publish({.lineage = "run", .step = step},
                                            Together({AdapterWeights::FromFolder("policy", policy_.Write()),
                                                      AdapterWeights::FromFolder("critic", critic_.Write())})));
  }
  AdapterSource From(std::string name, std::uint64_t step = 1) {
    return {.path = {}, .publishers = {publisher_.endpoint()}, .name = std::move(name), .lineage = "run", .step = step};
  }
  // One rank of an engine. Its chunks are small, so that an adapter has several.
  static std::unique_ptr<Rank> Engine(const std::string& relay = "tcp://127.0.0.1:0",
                                      const ParallelConfig& parallel = {}) {
    static int engines = 0;
    return std::make_unique<Rank>(
        kLlama, parallel, std::vector<std::string>{}, 4,
        ReceiverOptions{.engine = "engine-" + std::to_string(++engines), .chunk_bytes = 256, .relay = relay});
  }
  static std::uint64_t RelayedTo(const LoadedAdapter& loaded) {
    EXPECT_GT(loaded.report.bytes, 0U);
    EXPECT_EQ(loaded.report.publishers.at(0).bytes, loaded.report.bytes);
    return loaded.report.publishers.at(0).relayed_bytes;
  }
  void ExpectAsFromDisk(const Rank& engine, const LoadedAdapter& loaded, const AdapterOnDisk& adapter,
                        const std::string& buffer, std::size_t slot = 0) {
    Rank from_disk(kLlama);
    EXPECT_EQ(loaded.digest, from_disk.Load(adapter.Write()).digest);
    EXPECT_EQ(AsVector(engine.Values(buffer, slot)), AsVector(from_disk.Values(buffer)));
  }

  AdapterOnDisk policy_, critic_;
  Publisher publisher_{PublisherOptions{.channels = {"zmq"}}};  // which copies, as between hosts
  std::vector<PublishedVersion> published_;
};

TEST_F(RelayedAdapters, ComeFromAnEngineThatHasThemAndCostThePublisherOneCopy) {
  PublishBoth(1);
  const auto first = Engine(), second = Engine(), third = Engine();
  EXPECT_EQ(RelayedTo(first->Load(From("policy"))), 0U);
  for (Rank* engine : {second.get(), third.get()}) {
    const LoadedAdapter loaded = engine->Load(From("policy"));
    EXPECT_EQ(RelayedTo(loaded), loaded.report.bytes);
    ExpectAsFromDisk(*engine, loaded, policy_, "mlp.down_proj.lora_A");
  }
}

TEST_F(RelayedAdapters, OfEachRankComeFromTheSameRankOfAnotherEngine) {
  PublishBoth(1);
  for (int rank = 0; rank < 2; ++rank) {
    const ParallelConfig parallel{.tp_rank = rank, .tp_size = 2};
    const auto first = Engine("tcp://127.0.0.1:0", parallel), second = Engine("", parallel);
    const LoadedAdapter of_first = first->Load(From("policy")), of_second = second->Load(From("policy"));
    EXPECT_EQ(RelayedTo(of_first), 0U);
    EXPECT_EQ(RelayedTo(of_second), of_second.report.bytes);
    EXPECT_EQ(of_second.digest, of_first.digest);
  }
}

TEST_F(RelayedAdapters, AreServedOnUntilTheirSlotGetsOthers) {
  PublishBoth(1);
  PublishBoth(2);
  const auto first = Engine();
  first->Load(From("policy", 1), 0);
  first->Load(From("critic", 1), 1);
  const auto has_all = [&](const char* name, std::uint64_t step) {
    const LoadedAdapter loaded = Engine("")->Load(From(name, step));
    const std::uint64_t relayed = RelayedTo(loaded);
    EXPECT_TRUE(relayed == 0 || relayed == loaded.report.bytes) << relayed;
    return relayed != 0;
  };
  EXPECT_TRUE(has_all("policy", 1));
  EXPECT_TRUE(has_all("critic", 1));
  first->Load(From("policy", 2), 0);
  EXPECT_TRUE(has_all("policy", 2));
  EXPECT_TRUE(has_all("critic", 1)) << "another slot's load is none of its business";
  EXPECT_FALSE(has_all("policy", 1));
  first->Load(policy_.Write(), 1);
  EXPECT_FALSE(has_all("critic", 1)) << "the slot holds a folder's adapter now";
}

TEST_F(RelayedAdapters, ComeFromThePublisherToARankThatIsShardedOtherwise) {
  PublishBoth(1);
  const auto whole = Engine(), half = Engine("", {.tp_rank = 1, .tp_size = 2});
  whole->Load(From("policy"));
  EXPECT_EQ(RelayedTo(half->Load(From("policy"))), 0U);
}

TEST_F(RelayedAdapters, AreNotRelayedAtAnAddressThatStandsForAll) {
  EXPECT_THAT(ErrorOf([] { Engine("tcp://0.0.0.0:0"); }, ErrorCode::kInvalidArgument),
              AllOf(HasSubstr("relay endpoint"), HasSubstr("expected an address that other receivers reach")));
}

}  // namespace
}  // namespace layercast
