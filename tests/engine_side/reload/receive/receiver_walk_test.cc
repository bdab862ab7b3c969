// Calls in any order under every commit policy, with failures armed anywhere: after each, what is served is the version
// that the receiver names, or it says that the rank is torn, where the policy may be.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "layercast/error.h"
#include "src/base/digest/digest.h"
#include "tests/support/reload/receiver_rig.h"

namespace layercast {
namespace {

using testing::Differences;
using testing::EagerSource;
using testing::ReceiverRig;
using testing::ServedBytes;
using testing::SpecsOf;
using testing::TensorsOf;
using testing::Weights;
using testing::WriteCheckpoint;

constexpr std::uint32_t kVersions = 2;
constexpr const char* kPoints[] = {"layer_buffer", "materialize",    "fuse_and_shard", "quantize",
                                   "verify",       "commit.prepare", "commit.copy",    "commit.undo"};

class AnyWalk {
 public:
  AnyWalk(CommitPolicy policy, std::uint32_t seed) : policy_(policy), random_(seed) {
    ReceiverRig names;
    for (std::uint32_t i = 0; i < kVersions; ++i) {
      weights_.push_back(names.Version(i + 1));
      folders_.push_back(std::make_unique<TempFolder>());
      WriteCheckpoint(*folders_.back(), weights_.back());
      const Version version = names.receiver->ReloadWeights(EagerSource(weights_.back())).version;
      expected_.emplace(version.digest.ToHex(), names.Expected(weights_.back()));
    }
    ::setenv("LAYERCAST_FAILPOINTS", Failures().c_str(), 1);
    rig_ =
        std::make_unique<ReceiverRig>(testing::RigOptions{.recipe = "fp8_per_channel"}, Below(2) == 0, false, policy);
    ::unsetenv("LAYERCAST_FAILPOINTS");
    at_first_ = rig_->engine.Served();
    rig_->receiver->record_metadata_for_reloading();
  }

  void Step() {
    Receiver& receiver = *rig_->receiver;
    const Weights& weights = weights_[Below(kVersions)];
    switch (Below(11)) {
      case 0: return Call("stage", [&] { receiver.Stage(EagerSource(weights)); });
      case 1: return Call("stage a path", [&] { receiver.Stage(FromPath(folders_[Below(kVersions)]->path())); });
      case 2: return Call("stage the origin", [&] { receiver.Stage(FromOrigin()); });
      case 3: return Call("stage what breaks", [&] { receiver.Stage(Broken(weights)); });
      case 4: return Call("prepare", [&] { receiver.Prepare(); });
      case 5:
      case 6: return Call("commit", [&] { receiver.Commit(); });
      case 7: return Call("abort", [&] { End([&] { receiver.Abort(); }); });
      case 8: return Call("roll back", [&] { End([&] { static_cast<void>(receiver.RollBack()); }); });
      case 9: return Call("reload", [&] { receiver.ReloadWeights(EagerSource(weights)); });
      default: return CallByCall(weights);
    }
  }

  // Whatever has happened: of as many failures as can be armed, each strikes once.
  void ReloadInTheEnd() {
    Call("abort", [&] { End([&] { rig_->receiver->Abort(); }); });
    bool reloaded = false;
    for (std::size_t i = 0; i <= std::size(kPoints) && !reloaded; ++i) {
      Call("reload", [&] {
        rig_->receiver->ReloadWeights(EagerSource(weights_[0]));
        reloaded = true;
      });
    }
    ASSERT_TRUE(reloaded) << said_;
  }

 private:
  std::size_t Below(std::size_t bound) { return random_() % bound; }

  std::string Failures() {
    std::string armed;
    for (const char* point : kPoints) {
      if (Below(2) != 0) continue;
      undo_fails_ = undo_fails_ || std::string(point) == "commit.undo";
      armed += (armed.empty() ? "" : ",") + std::string(point) + "=throw@" + std::to_string(1 + Below(40));
    }
    return armed;
  }

  // Ends too early, repeats a tensor, or throws in the middle.
  ReloadSource Broken(const Weights& weights) {
    std::vector<NamedTensor> tensors = TensorsOf(weights);
    const std::size_t at = Below(tensors.size());
    const std::size_t kind = Below(3);
    if (kind == 0) tensors.resize(at);
    if (kind == 1) tensors.push_back(tensors[at]);
    auto next = [tensors, at, kind, i = std::size_t{0}]() mutable -> std::optional<NamedTensor> {
      if (kind == 2 && i == at) throw std::runtime_error("the trainer is gone");
      return i == tensors.size() ? std::nullopt : std::optional(tensors[i++]);
    };
    return FromIterator(MakeWeightsIterator(std::move(next)), SpecsOf(weights));
  }

  void CallByCall(const Weights& weights) {
    switch (Below(4)) {
      case 0:
        return Call("initialize", [&] {
          rig_->receiver->initialize_layerwise_reload(SpecsOf(weights));
          receiving_ = true;
        });
      case 1: return Call("load all", [&] { rig_->receiver->load_weights(*weights.Stream()); });
      case 2: {
        std::vector<NamedTensor> some = TensorsOf(weights);
        some.resize(1 + Below(some.size()));
        return Call("load some", [&] { rig_->receiver->load_weights(*MakeWeightsIterator(some)); });
      }
      default: return Call("finalize", [&] { End([&] { rig_->receiver->finalize_layerwise_processing(); }); });
    }
  }

  template <class Wanted>
  void End(const Wanted& wanted) {
    wanted();
    receiving_ = false;
  }

  // Any error is right, as long as it is none of ours.
  template <class Wanted>
  void Call(const char* what, const Wanted& wanted) {
    try {
      wanted();
      said_ = what;
    } catch (const std::exception& error) {
      said_ = std::string(what) + ": " + error.what();
      ASSERT_EQ(said_.find("bug in Layercast"), std::string::npos) << said_;
      const bool refused =
          said_.find("is already active") != std::string::npos || said_.find("nothing is staged") != std::string::npos;
      receiving_ = receiving_ && refused;  // else it was the load that failed
    }
    Check();
  }

  void Check() {
    const Receiver& receiver = *rig_->receiver;
    ASSERT_TRUE(rig_->engine.CanariesAreAlive()) << said_;
    if (receiver.torn()) {
      ASSERT_FALSE(receiver.version()) << said_;
      ASSERT_TRUE(policy_ != CommitPolicy::kUndo || undo_fails_) << said_;
      return;
    }
    if (receiving_ && policy_ != CommitPolicy::kStaged) return;  // no forward pass may run
    const ServedBytes& expected = receiver.version() ? expected_.at(receiver.version()->digest.ToHex()) : at_first_;
    ASSERT_EQ(Differences(rig_->engine.Served(), expected), std::vector<std::string>()) << said_;
  }

  const CommitPolicy policy_;
  std::mt19937 random_;
  std::vector<Weights> weights_;
  std::vector<std::unique_ptr<TempFolder>> folders_;
  std::map<std::string, ServedBytes> expected_;  // by digest of the version
  std::unique_ptr<ReceiverRig> rig_;
  ServedBytes at_first_;
  bool undo_fails_ = false;
  bool receiving_ = false;
  std::string said_;
};

TEST(ReceiverWalk, WhatIsServedIsTheVersionThatIsNamed) {
  for (const CommitPolicy policy : {CommitPolicy::kStaged, CommitPolicy::kUndo, CommitPolicy::kInPlace}) {
    for (std::uint32_t seed = 1; seed <= (testing::kUnderSanitizer ? 1U : 5U); ++seed) {
      SCOPED_TRACE(std::string(CommitPolicyName(policy)) + ", seed " + std::to_string(seed));
      AnyWalk walk(policy, seed);
      for (int step = 0; step < 60 && !::testing::Test::HasFatalFailure(); ++step) walk.Step();
      if (!::testing::Test::HasFatalFailure()) walk.ReloadInTheEnd();
    }
  }
}

}  // namespace
}  // namespace layercast
