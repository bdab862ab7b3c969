// The commit policies through the receiver: every one serves the same bytes; what is served, and said, when a reload
// fails anywhere; and what memory that costs.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "layercast/error.h"
#include "tests/reload/receiver_rig.h"

namespace layercast {
namespace {

using ::testing::AnyOf;
using testing::Differences;
using testing::EagerSource;
using testing::ErrorOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::LazySource;
using ::testing::Not;
using testing::ReceiverRig;
using testing::RigOptions;
using testing::SpecsOf;
using testing::TensorsOf;
using testing::Weights;
using testing::WriteCheckpoint;

constexpr CommitPolicy kLayerwise[] = {CommitPolicy::kUndo, CommitPolicy::kInPlace};

// For receivers that are made while it lives.
class ArmedFailpoints {
 public:
  explicit ArmedFailpoints(const std::string& specification) {
    ::setenv("LAYERCAST_FAILPOINTS", specification.c_str(), 1);
  }
  ~ArmedFailpoints() { ::unsetenv("LAYERCAST_FAILPOINTS"); }
};

std::size_t QuantizedBytes(const ReceiverRig& rig) {
  std::size_t bytes = 0;
  for (const auto& [name, served] : rig.engine.Served()) bytes += served.size();
  return bytes;
}

TEST(ReceiverCommit, EveryPolicyServesTheBytesOfAStagedReload) {
  for (const char* recipe : {"none", "fp8_per_tensor", "fp8_per_channel", "fp8_per_block"}) {
    const RigOptions options{.recipe = recipe, .parallel = {1, 2}};
    const Weights a = testing::RigWeights(options, 1);
    const Weights b = testing::RigWeights(options, 2);
    const TempFolder folder;
    WriteCheckpoint(folder, b);
    ReceiverRig staged(options);
    const Digest digest = staged.receiver->ReloadWeights(EagerSource(b)).served_digest;
    EXPECT_THAT(Differences(staged.engine.Served(), staged.Expected(b)), IsEmpty());
    for (const CommitPolicy policy : kLayerwise) {
      SCOPED_TRACE(std::string(recipe) + ", " + std::string(CommitPolicyName(policy)));
      const auto serves_b = [&](const char* way, bool direct, const std::function<ReloadReport(Receiver&)>& load) {
        ReceiverRig rig(options, direct, false, policy);
        rig.receiver->ReloadWeights(EagerSource(a));
        const ReloadReport report = load(*rig.receiver);
        EXPECT_THAT(Differences(rig.engine.Served(), staged.engine.Served()), IsEmpty()) << way;
        EXPECT_TRUE(rig.engine.CanariesAreAlive()) << way;
        EXPECT_EQ(report.served_digest, digest) << way;
        EXPECT_EQ(*rig.receiver->version(), report.version) << way;
      };
      serves_b("five stages", false, [&](Receiver& r) { return r.ReloadWeights(EagerSource(b)); });
      serves_b("direct", true, [&](Receiver& r) { return r.ReloadWeights(FromPath(folder.path())); });
      serves_b("in two phases", true, [&](Receiver& r) {
        r.Stage(FromPath(folder.path()));
        r.Prepare();
        r.Commit();
        r.VerifyServed();
        return r.report();
      });
      serves_b("call by call", true, [&](Receiver& r) {
        r.record_metadata_for_reloading();
        r.initialize_layerwise_reload(SpecsOf(b));
        for (const NamedTensor& tensor : TensorsOf(b)) r.load_weights(*MakeWeightsIterator({tensor}));
        return r.finalize_layerwise_processing();
      });
    }
  }
}

TEST(ReceiverCommit, ALayerOfOnlyPaddingIsServedAsZeros) {
  for (const CommitPolicy policy : kLayerwise) {
    for (const bool direct : {true, false}) {
      ReceiverRig rig({.parallel = {3, 4}}, direct, false, policy);
      const Weights weights = rig.Version(1);
      const TempFolder folder;
      WriteCheckpoint(folder, weights);
      EXPECT_EQ(rig.receiver->ReloadWeights(FromPath(folder.path())).layers, 9U);
      EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(weights)), IsEmpty());
    }
  }
}

TEST(ReceiverCommit, NothingIsWrittenWhileAVersionIsOnlyStaged) {
  for (const CommitPolicy policy : kLayerwise) {
    ReceiverRig rig({}, true, false, policy);
    rig.receiver->ReloadWeights(EagerSource(rig.Version(1)));
    const auto served = rig.engine.Served();
    rig.receiver->Stage(LazySource(rig.Version(2)));
    rig.receiver->Prepare();
    EXPECT_THAT(Differences(rig.engine.Served(), served), IsEmpty());
    rig.receiver->Abort();
    EXPECT_FALSE(rig.receiver->torn());
    EXPECT_THAT(ErrorOf([&] { rig.receiver->Commit(); }), HasSubstr("nothing is staged"));
  }
}

TEST(ReceiverCommit, InPlaceTakesOneLayerBesideTheLiveWeights) {
  // gate_up_proj and qkv_proj are [512, 128], in full precision with qkv_proj's bias; and the same, quantized, each
  // kernel tensor at a multiple of 64 bytes.
  const std::map<std::string, std::size_t> quantized = {{"none", 2U * 512 * 129},
                                                        {"fp8_per_tensor", 512U * 128 + 64 + 2 * 512},
                                                        {"fp8_per_channel", 512U * 128 + 4 * 512 + 2 * 512},
                                                        {"fp8_per_block", 512U * 128 + 64 + 2 * 512}};
  const std::size_t full = 2U * 512 * 129;
  for (const auto& [recipe, layer] : quantized) {
    ReceiverRig rig({.recipe = recipe, .layers = 3}, true, false, CommitPolicy::kInPlace);
    const TempFolder folder;
    WriteCheckpoint(folder, rig.Version(1));
    for (int i = 0; i < 3; ++i) {
      rig.receiver->ReloadWeights(LazySource(rig.Version(2)));
      EXPECT_EQ(rig.layer_memory.peak_bytes(), full + layer) << recipe;
    }
    rig.layer_memory.ResetPeak();
    rig.receiver->ReloadWeights(FromPath(folder.path()));
    EXPECT_EQ(rig.layer_memory.peak_bytes(), recipe == "fp8_per_tensor" ? full + layer : layer) << recipe;
    EXPECT_EQ(rig.layer_memory.current_bytes(), 0U);
    EXPECT_LE(rig.staging_memory.peak_bytes(), sizeof(Digest) + rig.engine.Served().size()) << "a record, no bytes";
  }
}

TEST(ReceiverCommit, UndoTakesOneQuantizedCopyAndALayer) {
  ReceiverRig rig({.recipe = "fp8_per_channel", .layers = 3}, true, false, CommitPolicy::kUndo);
  const std::size_t buffers = rig.engine.Served().size();
  for (int i = 0; i < 3; ++i) rig.receiver->ReloadWeights(LazySource(rig.Version(1)));
  EXPECT_GE(rig.staging_memory.peak_bytes(), QuantizedBytes(rig));
  EXPECT_LE(rig.staging_memory.peak_bytes(), QuantizedBytes(rig) + (64 + 1) * buffers + sizeof(Digest));
  EXPECT_EQ(rig.layer_memory.peak_bytes(), 2U * 512 * 129 + 512U * 128 + 4 * 512 + 2 * 512);
  EXPECT_EQ(rig.staging_memory.allocations(), 2U) << "once and for all: the record and the log";
}

// Where a reload is made to fail. `written`: layers of the version were in the captured buffers by then.
struct Fault {
  const char* failpoint;
  bool written;
};

const Fault kFaults[] = {
    {"layer_buffer=throw", false}, {"layer_buffer=throw@9", true},   {"materialize=throw", false},
    {"materialize=throw@3", true}, {"fuse_and_shard=throw@5", true}, {"quantize=throw", false},
    {"quantize=throw@4", true},    {"verify=throw", true},           {"commit.prepare=throw", false},
    {"commit.copy=throw", false},  {"commit.copy=throw@1", true},    {"commit.copy=throw@7", true},
};

TEST(ReceiverCommit, UndoServesTheOldVersionAfterAFailureAnywhere) {
  for (const auto& [failpoint, written] : kFaults) {
    SCOPED_TRACE(failpoint);
    const ArmedFailpoints armed(failpoint);
    ReceiverRig rig({.recipe = "fp8_per_channel"}, false, false, CommitPolicy::kUndo);
    rig.receiver->ReloadWeights(EagerSource(rig.Version(1)));
    const auto served = rig.engine.Served();
    const Version version = *rig.receiver->version();
    EXPECT_THAT(ErrorOf([&] { rig.receiver->ReloadWeights(EagerSource(rig.Version(2))); }), HasSubstr("failpoint"));
    EXPECT_THAT(Differences(rig.engine.Served(), served), IsEmpty());
    EXPECT_FALSE(rig.receiver->torn());
    EXPECT_EQ(*rig.receiver->version(), version);
    EXPECT_EQ(rig.layer_memory.current_bytes(), 0U);
    EXPECT_NO_THROW(rig.receiver->VerifyServed());
    rig.receiver->ReloadWeights(EagerSource(rig.Version(3)));
    EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(rig.Version(3))), IsEmpty());
  }
}

TEST(ReceiverCommit, InPlaceIsTornAfterTheFirstWriteUntilAWholeVersionLands) {
  for (const auto& [failpoint, written] : kFaults) {
    SCOPED_TRACE(failpoint);
    const ArmedFailpoints armed(failpoint);
    ReceiverRig rig({.recipe = "fp8_per_channel"}, false, false, CommitPolicy::kInPlace);
    rig.receiver->ReloadWeights(EagerSource(rig.Version(1)));
    const auto served = rig.engine.Served();
    const Version version = *rig.receiver->version();
    EXPECT_THAT(ErrorOf([&] { rig.receiver->ReloadWeights(EagerSource(rig.Version(2))); }), HasSubstr("failpoint"));
    ASSERT_EQ(rig.receiver->torn().has_value(), written);
    EXPECT_EQ(Differences(rig.engine.Served(), served).empty(), !written);
    EXPECT_EQ(rig.layer_memory.current_bytes(), 0U);
    if (written) {
      EXPECT_EQ(rig.receiver->torn()->from, version);
      EXPECT_EQ(rig.receiver->torn()->to.lineage, "iterator");
      EXPECT_FALSE(rig.receiver->version());
      EXPECT_THAT(ErrorOf([&] { rig.receiver->VerifyServed(); }), HasSubstr("torn"));
      // One that fails before it writes heals nothing.
      std::vector<TensorSpec> specs = SpecsOf(rig.Version(2));
      specs.pop_back();
      EXPECT_THAT(ErrorOf([&] {
                    rig.receiver->ReloadWeights(FromIterator(MakeWeightsIterator(std::vector<NamedTensor>()), specs));
                  }),
                  HasSubstr("lm_head"));
      ASSERT_TRUE(rig.receiver->torn());
      EXPECT_EQ(rig.receiver->torn()->from, version);
    } else {
      EXPECT_EQ(*rig.receiver->version(), version);
      EXPECT_NO_THROW(rig.receiver->VerifyServed());
    }
    rig.receiver->ReloadWeights(EagerSource(rig.Version(3)));
    EXPECT_FALSE(rig.receiver->torn());
    EXPECT_TRUE(rig.receiver->version());
    EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(rig.Version(3))), IsEmpty());
  }
}

TEST(ReceiverCommit, BadBytesInTheMiddleNeverReachACapturedBuffer) {
  const std::vector<std::byte> nan(65U * 128 * 2, std::byte{0xFF});
  for (const CommitPolicy policy : kLayerwise) {
    for (const bool direct : {true, false}) {
      ReceiverRig rig({.recipe = "fp8_per_channel"}, direct, false, policy);
      rig.receiver->ReloadWeights(EagerSource(rig.Version(1)));
      const auto old = rig.engine.Served();
      const Weights b = rig.Version(2);
      const auto expected = rig.Expected(b);
      std::vector<NamedTensor> tensors = TensorsOf(b);
      tensors.back().tensor.data = nan.data();
      EXPECT_THAT(ErrorOf([&] { rig.receiver->ReloadWeights(FromIterator(MakeWeightsIterator(tensors), SpecsOf(b))); }),
                  HasSubstr("'lm_head.weight'"));
      EXPECT_EQ(rig.receiver->torn().has_value(), policy == CommitPolicy::kInPlace);
      for (const auto& [name, bytes] : rig.engine.Served()) {
        EXPECT_THAT(bytes, AnyOf(old.at(name), expected.at(name))) << name;
      }
      EXPECT_EQ(rig.engine.Served().at("lm_head.weight"), old.at("lm_head.weight"));
    }
  }
}

TEST(ReceiverCommit, ALoadThatIsGivenUpCallByCallIsPutBack) {
  for (const CommitPolicy policy : kLayerwise) {
    ReceiverRig rig({.recipe = "fp8_per_channel"}, true, false, policy);
    const Weights a = rig.Version(1);
    const Weights b = rig.Version(2);
    rig.receiver->ReloadWeights(EagerSource(a));
    const auto served = rig.engine.Served();
    rig.receiver->record_metadata_for_reloading();
    for (const std::size_t tensors : {std::size_t{0}, std::size_t{5}}) {
      rig.receiver->initialize_layerwise_reload(SpecsOf(b));
      std::vector<NamedTensor> some = TensorsOf(b);
      some.resize(tensors);
      rig.receiver->load_weights(*MakeWeightsIterator(some));
      rig.receiver->Abort();
      const bool torn = policy == CommitPolicy::kInPlace && tensors != 0;
      EXPECT_EQ(rig.receiver->torn().has_value(), torn);
      EXPECT_EQ(Differences(rig.engine.Served(), served).empty(), !torn);
    }
    rig.receiver->initialize_layerwise_reload(SpecsOf(b));
    rig.receiver->load_weights(*b.Stream());
    rig.receiver->finalize_layerwise_processing();
    EXPECT_FALSE(rig.receiver->torn());
    EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(b)), IsEmpty());
  }
}

TEST(ReceiverCommit, RollingBackEndsALoadThatIsGoingOnCallByCall) {
  for (const CommitPolicy policy : {CommitPolicy::kStaged, CommitPolicy::kUndo, CommitPolicy::kInPlace}) {
    SCOPED_TRACE(CommitPolicyName(policy));
    ReceiverRig rig({}, true, false, policy);
    const Weights b = rig.Version(2);
    rig.receiver->ReloadWeights(EagerSource(rig.Version(1)));
    const auto served = rig.engine.Served();
    rig.receiver->record_metadata_for_reloading();
    rig.receiver->initialize_layerwise_reload(SpecsOf(b));
    std::vector<NamedTensor> half = TensorsOf(b);
    const std::vector<NamedTensor> rest(half.begin() + 8, half.end());
    half.resize(8);
    rig.receiver->load_weights(*MakeWeightsIterator(half));
    const bool whole = policy != CommitPolicy::kInPlace;
    EXPECT_EQ(rig.receiver->RollBack(), whole);
    EXPECT_THAT(ErrorOf([&] { rig.receiver->load_weights(*MakeWeightsIterator(rest)); }),
                HasSubstr("initialize_layerwise_reload must be called"));
    EXPECT_EQ(rig.receiver->torn().has_value(), !whole);
    EXPECT_EQ(Differences(rig.engine.Served(), served).empty(), whole);
    rig.receiver->ReloadWeights(EagerSource(b));
    EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(b)), IsEmpty());
  }
}

// As where another rank of the engine failed.
TEST(ReceiverCommit, ACommittedVersionIsRolledBackUntilTheNextStage) {
  for (const CommitPolicy policy : {CommitPolicy::kStaged, CommitPolicy::kUndo, CommitPolicy::kInPlace}) {
    SCOPED_TRACE(CommitPolicyName(policy));
    ReceiverRig rig({}, true, false, policy);
    rig.receiver->ReloadWeights(EagerSource(rig.Version(1)));
    const auto served = rig.engine.Served();
    const Version version = *rig.receiver->version();
    rig.receiver->ReloadWeights(EagerSource(rig.Version(2)));
    EXPECT_EQ(rig.receiver->RollBack(), policy == CommitPolicy::kUndo);
    if (policy == CommitPolicy::kUndo) {
      EXPECT_THAT(Differences(rig.engine.Served(), served), IsEmpty());
      EXPECT_EQ(*rig.receiver->version(), version);
      EXPECT_NO_THROW(rig.receiver->VerifyServed());
    } else {
      EXPECT_EQ(rig.receiver->torn()->from, version);
    }
    rig.receiver->ReloadWeights(EagerSource(rig.Version(2)));
    EXPECT_FALSE(rig.receiver->torn());
    rig.receiver->Stage(EagerSource(rig.Version(3)));
    EXPECT_TRUE(rig.receiver->RollBack()) << "there is no way back beyond the last Stage";
    EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(rig.Version(2))), IsEmpty());
  }
}

TEST(ReceiverCommit, TheOriginIsThePathThatWasCommittedLast) {
  for (const CommitPolicy policy : {CommitPolicy::kStaged, CommitPolicy::kUndo, CommitPolicy::kInPlace}) {
    SCOPED_TRACE(CommitPolicyName(policy));
    ReceiverRig rig({}, true, false, policy);
    const TempFolder a;
    const TempFolder b;
    WriteCheckpoint(a, rig.Version(1));
    WriteCheckpoint(b, rig.Version(2));
    const auto expect_origin = [&](std::uint32_t version) {
      rig.receiver->ReloadWeights(EagerSource(rig.Version(3)));
      rig.receiver->ReloadWeights(FromOrigin());
      EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(rig.Version(version))), IsEmpty());
    };
    rig.receiver->ReloadWeights(FromPath(a.path()));
    rig.receiver->Stage(FromPath(b.path()));
    rig.receiver->Abort();
    expect_origin(1);
    rig.receiver->ReloadWeights(FromPath(b.path()));
    rig.receiver->RollBack();  // or torn: b is no more than half there
    rig.receiver->ReloadWeights(FromOrigin());
    EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(rig.Version(1))), IsEmpty());
    rig.receiver->ReloadWeights(FromPath(b.path()));
    expect_origin(2);
  }
}

TEST(ReceiverCommit, ServedBytesThatAreNotWhatWasCommittedAreNoVersion) {
  for (const CommitPolicy policy : {CommitPolicy::kStaged, CommitPolicy::kUndo, CommitPolicy::kInPlace}) {
    SCOPED_TRACE(CommitPolicyName(policy));
    ReceiverRig rig({}, true, false, policy);
    rig.receiver->ReloadWeights(EagerSource(rig.Version(1)));
    const Version before = *rig.receiver->version();
    const Version after = rig.receiver->ReloadWeights(EagerSource(rig.Version(2))).version;
    *rig.engine.table()[3].address ^= std::byte{1};
    EXPECT_THAT(ErrorOf([&] { rig.receiver->VerifyServed(); }, ErrorCode::kCorrupt), HasSubstr("read back"));
    EXPECT_FALSE(rig.receiver->version());
    ASSERT_TRUE(rig.receiver->torn());
    EXPECT_EQ(rig.receiver->torn()->from, before);
    EXPECT_EQ(rig.receiver->torn()->to, after);
    rig.receiver->ReloadWeights(EagerSource(rig.Version(2)));
    EXPECT_FALSE(rig.receiver->torn());
    EXPECT_EQ(*rig.receiver->version(), after);
    EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(rig.Version(2))), IsEmpty());
  }
}

TEST(ReceiverCommit, ARollBackThatFailsTearsAndIsTriedAgain) {
  const ArmedFailpoints armed("layer_buffer=throw@9,commit.undo=throw@1");
  for (const bool by_next_reload : {false, true}) {
    ReceiverRig rig({.recipe = "fp8_per_channel"}, false, false, CommitPolicy::kUndo);
    rig.receiver->ReloadWeights(EagerSource(rig.Version(1)));
    const auto served = rig.engine.Served();
    const Version version = *rig.receiver->version();
    EXPECT_THAT(ErrorOf([&] { rig.receiver->ReloadWeights(EagerSource(rig.Version(2))); }), HasSubstr("layer_buffer"));
    ASSERT_TRUE(rig.receiver->torn());
    EXPECT_EQ(rig.receiver->torn()->from, version);
    EXPECT_THAT(Differences(rig.engine.Served(), served), Not(IsEmpty()));
    if (by_next_reload) {
      EXPECT_THAT(ErrorOf([&] { rig.receiver->ReloadWeights(FromPath("/nowhere")); }), HasSubstr("/nowhere"));
    } else {
      EXPECT_TRUE(rig.receiver->RollBack());
    }
    EXPECT_FALSE(rig.receiver->torn());
    EXPECT_EQ(*rig.receiver->version(), version);
    EXPECT_THAT(Differences(rig.engine.Served(), served), IsEmpty());
  }
}

TEST(ReceiverCommit, AMovedBufferIsRefusedBeforeTheFirstByte) {
  for (const CommitPolicy policy : kLayerwise) {
    ReceiverRig rig({}, true, false, policy);
    rig.receiver->ReloadWeights(EagerSource(rig.Version(1)));
    const auto served = rig.engine.Served();
    rig.engine.table()[3].address += 16;
    EXPECT_THAT(ErrorOf([&] { rig.receiver->ReloadWeights(EagerSource(rig.Version(2))); }),
                HasSubstr("must never move"));
    rig.engine.table()[3].address -= 16;
    EXPECT_THAT(Differences(rig.engine.Served(), served), IsEmpty());
    EXPECT_FALSE(rig.receiver->torn());
  }
}

TEST(ReceiverCommit, KernelFormatIsWrittenTensorByTensor) {
  for (const CommitPolicy policy : kLayerwise) {
    ReceiverRig rig({}, true, false, policy);
    rig.receiver->ReloadWeights(EagerSource(rig.Version(1)));
    const auto a = rig.engine.Served();
    std::vector<NamedTensor> kernel;
    std::vector<TensorSpec> specs;
    for (const CapturedBuffer& buffer : rig.receiver->captured().buffers()) {
      kernel.push_back({buffer.name, {buffer.dtype, buffer.shape, a.at(buffer.name).data(), {}}, nullptr});
      specs.push_back({buffer.name, buffer.dtype, buffer.shape});
    }
    rig.receiver->ReloadWeights(EagerSource(rig.Version(2)));
    const auto from = [&](std::vector<TensorSpec> given) {
      rig.receiver->ReloadWeights(FromIterator(MakeWeightsIterator(kernel), std::move(given), false));
    };
    EXPECT_THAT(ErrorOf([&] { from({}); }), HasSubstr("needs the specs"));
    std::vector<TensorSpec> short_specs = specs;
    short_specs.pop_back();
    EXPECT_THAT(ErrorOf([&] { from(short_specs); }), HasSubstr("missing: '"));
    EXPECT_FALSE(rig.receiver->torn()) << "both were refused before the first byte";
    rig.layer_memory.ResetPeak();
    from(specs);
    EXPECT_THAT(Differences(rig.engine.Served(), a), IsEmpty());
    EXPECT_LE(rig.layer_memory.peak_bytes(), 2U * 512 * 128) << "one kernel tensor at a time";
  }
}

TEST(ReceiverCommit, OnlyStagedVersionsCanBeAdopted) {
  for (const CommitPolicy policy : kLayerwise) {
    ReceiverRig rig({}, true, false, policy);
    rig.receiver->Stage(EagerSource(rig.Version(1)));
    EXPECT_THAT(ErrorOf([&] { (void)rig.receiver->staged_version(); }), HasSubstr("keeps no staged version"));
    EXPECT_THAT(ErrorOf([&] { rig.receiver->AdoptStaged({}); }), HasSubstr("keeps no staged version"));
  }
}

}  // namespace
}  // namespace layercast
