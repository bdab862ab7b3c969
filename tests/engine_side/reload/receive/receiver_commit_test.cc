// The commit policies through the receiver: every one serves the same bytes, and what memory that costs.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "layercast/error.h"
#include "tests/support/reload/receiver_rig.h"

namespace layercast {
namespace {

using testing::Differences;
using testing::EagerSource;
using testing::ErrorOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kLayerwise;
using testing::LazySource;
using testing::ReceiverRig;
using testing::RigOptions;
using testing::SpecsOf;
using testing::TensorsOf;
using testing::Weights;
using testing::WriteCheckpoint;

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
    static_cast<void>(rig.receiver->RollBack());  // or torn: b is no more than half there
    rig.receiver->ReloadWeights(FromOrigin());
    EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(rig.Version(1))), IsEmpty());
    rig.receiver->ReloadWeights(FromPath(b.path()));
    expect_origin(2);
    rig.receiver->ReloadWeights(FromPath(a.path()));
    rig.receiver->Stage(FromPath(b.path()));
    rig.receiver->Abort();
    *rig.engine.table()[3].address ^= std::byte{1};
    EXPECT_THROW(rig.receiver->VerifyServed(), Error);  // a is committed, though its bytes are lost
    expect_origin(1);
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
