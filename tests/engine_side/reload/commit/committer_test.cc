// Each commit policy by itself: what it writes and when, what it can put back, and what a process that comes after one
// that died finds.
#include "engine_side/reload/commit/committer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "engine_side/reload/commit/write_record.h"
#include "engine_side/reload/layout/served_digest.h"
#include "layercast/error.h"
#include "tests/support/reload/rig.h"

namespace layercast {
namespace {

using testing::Differences;
using testing::ErrorOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::Rig;
using testing::ServedBytes;

// Memory that outlives who asked for it: the same calls after Restart give the same bytes again.
class OutlivingMemory final : public MemoryResource {
 public:
  std::byte* Allocate(std::size_t bytes) override {
    if (next_ == blocks_.size()) blocks_.emplace_back(host_, bytes);
    EXPECT_EQ(blocks_[next_].size(), bytes);
    return blocks_[next_++].data();
  }
  void Deallocate(std::byte* /*address*/, std::size_t /*bytes*/) noexcept override {}
  void Restart() { next_ = 0; }

 private:
  HostMemory host_;
  std::vector<Buffer> blocks_;
  std::size_t next_ = 0;
};

struct CommitterRig {
  explicit CommitterRig(CommitPolicy given, std::string failpoints = "")
      : policy(given), rig({.recipe = "fp8_per_block", .failpoints = std::move(failpoints)}) {
    for (const CapturedBuffer& buffer : rig.engine.table()) {
      std::fill_n(buffer.address, NumBytes(buffer.dtype, buffer.shape), std::byte{0x11});
    }
    old = rig.engine.Served();
    StartAnew();
  }
  layercast::Digest Digest() const { return CombineDigests(rig.layout, committer->digests()); }
  void StartAnew() {
    kept.Restart();
    committer.reset();
    committer = MakeCommitter(policy, {.layout = rig.layout,
                                       .kept_memory = kept,
                                       .layer_memory = rig.memory,
                                       .pool = rig.pool,
                                       .failpoints = rig.failpoints});
  }
  // The first `layers` layers of a version all of whose bytes are `fill`, but the last one of `but`.
  void Load(std::byte fill, std::size_t layers = 1000, const KernelTensor* but = nullptr) {
    LayerSink& sink = committer->Begin();
    for (const PlannedLayer& layer : std::span(rig.plan.layers()).first(std::min(layers, rig.plan.layers().size()))) {
      const auto tensors = rig.layout.TensorsOf(layer);
      sink.Open(tensors);
      for (const KernelTensor& tensor : tensors) {
        std::ranges::fill(sink.BytesOf(tensor), fill);
        if (&tensor == but) sink.BytesOf(tensor).back() ^= std::byte{1};
      }
      sink.Close(tensors);
    }
  }
  ServedBytes AllOf(std::byte fill) const {
    ServedBytes served = old;
    for (auto& [name, bytes] : served) std::ranges::fill(bytes, fill);
    return served;
  }

  CommitPolicy policy;
  Rig rig;
  OutlivingMemory kept;
  std::unique_ptr<Committer> committer;
  ServedBytes old;
};

constexpr std::byte kNew{0x22};
std::vector<CommitPolicy> EveryPolicy() {
  std::vector<CommitPolicy> policies;
  for (const std::string& name : KnownCommitPolicies()) policies.push_back(CommitPolicyNamed(name));
  return policies;
}

TEST(StagedCommitter, ItsDigestIsOfEveryTensorWhoeverStagedThem) {
  CommitterRig rig(CommitPolicy::kStaged);
  rig.Load(std::byte{0x22});
  const Digest whole = rig.Digest();
  for (const KernelTensor& tensor : rig.rig.layout.tensors()) {
    rig.Load(std::byte{0x22}, 1000, &tensor);
    const Digest other = rig.Digest();
    EXPECT_NE(other, whole) << tensor.spec.name;
    rig.StartAnew();  // what comes after a process that died reads what that one staged
    rig.committer->Begin();
    EXPECT_EQ(rig.Digest(), other) << tensor.spec.name;
  }
}

TEST(Committer, EveryPolicyWritesEveryBufferAndNothingAroundThem) {
  for (const CommitPolicy policy : EveryPolicy()) {
    SCOPED_TRACE(CommitPolicyName(policy));
    CommitterRig on(policy);
    on.Load(kNew);
    EXPECT_EQ(Differences(on.rig.engine.Served(), on.old).empty(), !WritesLayers(policy));
    on.committer->Commit();
    EXPECT_THAT(Differences(on.rig.engine.Served(), on.AllOf(kNew)), IsEmpty());
    EXPECT_TRUE(on.rig.engine.CanariesAreAlive());
    EXPECT_EQ(on.Digest(), on.rig.captured.ServedDigest());
    EXPECT_EQ(on.rig.memory.current_bytes(), 0U);
  }
}

TEST(Committer, UndoPutsBackWhateverWasWritten) {
  const std::size_t layers = Rig().plan.layers().size();
  for (std::size_t written = 0; written <= layers; ++written) {
    CommitterRig on(CommitPolicy::kUndo);
    on.Load(kNew, written);
    EXPECT_EQ(Differences(on.rig.engine.Served(), on.old).empty(), written == 0);
    EXPECT_TRUE(on.committer->RollBack());
    EXPECT_THAT(Differences(on.rig.engine.Served(), on.old), IsEmpty());
    EXPECT_TRUE(on.committer->RollBack()) << "there is nothing left to put back";
  }
}

TEST(Committer, UndoGoesBackNoFurtherThanWhatWasLastForgotten) {
  CommitterRig on(CommitPolicy::kUndo);
  on.Load(kNew);
  on.committer->Forget();
  on.Load(std::byte{0x33}, 3);
  EXPECT_TRUE(on.committer->RollBack());
  EXPECT_THAT(Differences(on.rig.engine.Served(), on.AllOf(kNew)), IsEmpty());
}

TEST(Committer, UndoThatFailsHalfWayIsBegunAgain) {
  for (const bool anew : {false, true}) {
    CommitterRig on(CommitPolicy::kUndo, "commit.undo=throw@4");
    on.Load(kNew, 6);
    EXPECT_THAT(ErrorOf([&] { on.committer->RollBack(); }), HasSubstr("commit.undo"));
    EXPECT_THAT(Differences(on.rig.engine.Served(), on.old), Not(IsEmpty()));
    if (anew) on.StartAnew();
    EXPECT_TRUE(on.committer->RollBack());
    EXPECT_THAT(Differences(on.rig.engine.Served(), on.old), IsEmpty());
  }
}

TEST(Committer, TheLogOfAProcessThatDiedPutsTheOldVersionBack) {
  CommitterRig on(CommitPolicy::kUndo, "commit.copy=throw@5");
  EXPECT_THAT(ErrorOf([&] { on.Load(kNew); }), HasSubstr("commit.copy"));
  EXPECT_THAT(Differences(on.rig.engine.Served(), on.old), Not(IsEmpty()));
  on.StartAnew();
  EXPECT_TRUE(on.committer->RollBack());
  EXPECT_THAT(Differences(on.rig.engine.Served(), on.old), IsEmpty());
}

TEST(Committer, WhatIsWrittenInPlaceStaysAndIsRemembered) {
  CommitterRig on(CommitPolicy::kInPlace);
  EXPECT_TRUE(on.committer->RollBack()) << "nothing was written";
  on.Load(kNew, 1);
  EXPECT_FALSE(on.committer->RollBack());
  on.StartAnew();
  EXPECT_FALSE(on.committer->RollBack()) << "a process that comes after knows";
  on.committer->Forget();
  EXPECT_TRUE(on.committer->RollBack());
  on.StartAnew();
  EXPECT_TRUE(on.committer->RollBack());
}

TEST(Committer, AFailureBeforeTheFirstByteTearsNothing) {
  for (const CommitPolicy policy : EveryPolicy()) {
    SCOPED_TRACE(CommitPolicyName(policy));
    CommitterRig on(policy, "commit.copy=throw");
    EXPECT_THAT(ErrorOf([&] {
                  on.Load(kNew);
                  on.committer->Commit();
                }),
                HasSubstr("commit.copy"));
    EXPECT_TRUE(on.committer->RollBack());
    EXPECT_THAT(Differences(on.rig.engine.Served(), on.old), IsEmpty());
  }
}

TEST(Committer, StagedCopiesAgainAfterAFailure) {
  CommitterRig on(CommitPolicy::kStaged, "commit.copy=throw@4");
  on.Load(kNew);
  EXPECT_THAT(ErrorOf([&] { on.committer->Commit(); }), HasSubstr("commit.copy"));
  EXPECT_FALSE(on.committer->RollBack());
  on.committer->Commit();
  EXPECT_THAT(Differences(on.rig.engine.Served(), on.AllOf(kNew)), IsEmpty());
}

TEST(Committer, ALayerThatWasLeftOpenIsGivenBack) {
  for (const CommitPolicy policy : {CommitPolicy::kUndo, CommitPolicy::kInPlace}) {
    CommitterRig on(policy);
    on.committer->Begin().Open(on.rig.layout.TensorsOf(on.rig.plan.layers().front()));
    EXPECT_GT(on.rig.memory.current_bytes(), 0U);
    on.committer->Drop();
    EXPECT_EQ(on.rig.memory.current_bytes(), 0U);
  }
}

TEST(WriteRecord, MemoryOfAnotherLayoutHoldsNoRecord) {
  const Rig rig({.recipe = "none"});
  const Rig other({.recipe = "none", .tied = true});
  OutlivingMemory memory;
  {
    WriteRecord record(rig.layout, memory);
    EXPECT_TRUE(record.empty());
    record.Note(3);
  }
  memory.Restart();
  const WriteRecord again(rig.layout, memory);
  EXPECT_TRUE(again.Has(3));
  EXPECT_FALSE(again.Has(2));
  HostMemory host;
  FillingMemory filled(host, std::byte{0xFF});
  EXPECT_TRUE(WriteRecord(other.layout, filled).empty());
}

TEST(CommitPolicy, IsNamed) {
  for (const std::string& name : KnownCommitPolicies()) EXPECT_EQ(CommitPolicyName(CommitPolicyNamed(name)), name);
  EXPECT_THAT(ErrorOf([] { CommitPolicyNamed("atomic"); }), HasSubstr("expected staged, undo or in_place"));
}

}  // namespace
}  // namespace layercast
