// What a receiver serves of a version with noise, held against a slow reference: under every commit policy, from every
// kind of source, and after everything that may happen to a version.
#include "engine_side/reload/noise/norm_noise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine_side/quant/recipes/recipe_table.h"
#include "layercast/model/norm.h"
#include "layercast/publisher.h"
#include "tests/support/noise/slow_noise.h"
#include "tests/support/reload/receiver_rig.h"
#include "tests/support/tree.h"

namespace layercast {
namespace {

using testing::Differences;
using testing::EagerSource;
using testing::EngineMemory;
using testing::ErrorOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::RigOptions;
using testing::ServedBytes;
using testing::SlowNoise;
using testing::Weights;

constexpr CommitPolicy kPolicies[] = {CommitPolicy::kStaged, CommitPolicy::kUndo, CommitPolicy::kInPlace};
constexpr Noise kNoise{.sigma = 0.01F, .seed = 0x123456789ABCDEF0};

bool IsNorm(const std::string& name) { return name.find("norm") != std::string::npos; }

ServedBytes WithNoise(ServedBytes served, const Noise& noise) {
  std::size_t norms = 0;
  for (auto& [name, bytes] : served) {
    if (!IsNorm(name)) continue;
    bytes = SlowNoise(bytes, name, noise);
    ++norms;
  }
  EXPECT_GE(norms, 3U);  // of a decoder's layer, and the final one
  return served;
}

ReloadSource With(ReloadSource source, const Noise& noise) {
  source.noise = noise;
  return source;
}

// A rank of an engine, whose weights may outlive its receiver.
class Rank {
 public:
  explicit Rank(CommitPolicy commit = CommitPolicy::kStaged, RigOptions rig = {.recipe = "fp8_per_channel"},
                const std::function<void(ReceiverOptions&)>& set = nullptr)
      : rig_(std::move(rig)), engine_(*testing::RigModel(rig_), *MakeRecipe(rig_.recipe)) {
    options_.commit = commit;
    options_.threads = 1;
    if (set) set(options_);
    Restart();
  }
  void Restart() {
    receiver_.reset();
    receiver_ = std::make_unique<Receiver>(testing::RigModel(rig_), rig_.parallel, QuantizationConfig{rig_.recipe},
                                           engine_.Adopt(), options_);
  }
  Weights Version(std::uint32_t seed) const { return testing::RigWeights(rig_, seed); }
  ServedBytes Published(std::uint32_t seed) const { return ServedSlowly(rig_, Version(seed)); }
  ServedBytes Served() const { return engine_.Served(); }
  ServedBytes Clean() const {
    const CapturedBuffers clean = receiver_->clean();
    ServedBytes bytes;
    for (const CapturedBuffer& buffer : clean.buffers()) bytes[buffer.name] = clean.Read(buffer);
    return bytes;
  }
  void ExpectServes(std::uint32_t seed, const Noise& noise) const {
    const ServedBytes published = Published(seed);
    EXPECT_THAT(Differences(Served(), noise.sigma == 0 ? published : WithNoise(published, noise)), IsEmpty());
    EXPECT_THAT(Differences(Clean(), published), IsEmpty());
    EXPECT_EQ(receiver_->noise(), noise.sigma == 0 ? std::nullopt : std::optional(noise));
    EXPECT_TRUE(engine_.CanariesAreAlive());
  }
  Receiver& receiver() { return *receiver_; }

 private:
  const RigOptions rig_;
  EngineMemory engine_;
  ReceiverOptions options_;
  std::unique_ptr<Receiver> receiver_;
};

TEST(NormNoise, IsServedUnderEveryPolicyAndRecipeAndOnEveryRank) {
  for (const CommitPolicy policy : kPolicies) {
    for (const bool direct : {true, false}) {
      for (const int rank : {0, 1}) {
        for (const char* recipe : {"none", "fp8_per_block", "nvfp4"}) {
          SCOPED_TRACE(std::string(CommitPolicyName(policy)) + " " + recipe + (direct ? " direct" : ""));
          Rank on(policy, {.recipe = recipe, .parallel = {rank, 2}},
                  [direct](ReceiverOptions& options) { options.direct = direct; });
          const ReloadReport report = on.receiver().ReloadWeights(With(EagerSource(on.Version(1)), kNoise));
          on.ExpectServes(1, kNoise);
          EXPECT_EQ(report.noise, kNoise);
          EXPECT_EQ(report.served_digest, on.receiver().captured().ServedDigest());
          on.receiver().VerifyServed();
        }
      }
    }
  }
}

TEST(NormNoise, IsDrawnAnewFromThePublishedNormsForEachOfTenVersions) {
  for (const CommitPolicy policy : kPolicies) {
    Rank on(policy);
    for (std::uint64_t step = 1; step <= 10; ++step) {
      const Noise noise{.sigma = 0.1F / static_cast<float>(step), .seed = step};
      on.receiver().ReloadWeights(With(EagerSource(on.Version(1)), noise));
      on.ExpectServes(1, noise);
    }
    EXPECT_FALSE(on.receiver().ReloadWeights(EagerSource(on.Version(1))).noise);
    on.ExpectServes(1, {});
  }
}

TEST(NormNoise, APublishersVersionBringsItsOwnAsTheEngineWantsIt) {
  Publisher publisher{PublisherOptions{}};
  struct Case {
    NoiseUse use;
    std::uint64_t own;
  };
  Rank model;
  const Weights weights = model.Version(1);
  for (const PublishMode mode : {PublishMode::kSnapshot, PublishMode::kStream}) {
    const std::uint64_t step = mode == PublishMode::kSnapshot ? 1 : 2;
    const PublishedVersion published = publisher.Publish(
        {.lineage = "run", .step = step, .mode = mode, .noise = kNoise},
        {.specs = testing::SpecsOf(weights), .walk = [&](std::span<const std::string>) { return weights.Stream(); }});
    for (const Case& of : {Case{NoiseUse::kShared, 0}, Case{NoiseUse::kPerEngine, testing::SlowHash("mine")}}) {
      Rank on(CommitPolicy::kUndo, {.recipe = "fp8_per_channel"}, [&](ReceiverOptions& options) {
        options.engine = "mine";
        options.noise = of.use;
      });
      const auto taken = [&] { return FromPublisher(publisher.endpoint(), "run", step); };
      const ReloadReport report = on.receiver().ReloadWeights(taken());
      EXPECT_EQ(report.version, published.version());
      on.ExpectServes(1, {.sigma = kNoise.sigma, .seed = kNoise.seed, .own = of.own});
      on.receiver().ReloadWeights(With(taken(), {}));  // --noise off
      on.ExpectServes(1, {});
    }
    Rank off(CommitPolicy::kStaged, {.recipe = "none"},
             [](ReceiverOptions& options) { options.noise = NoiseUse::kOff; });
    EXPECT_FALSE(off.receiver().ReloadWeights(FromPublisher(publisher.endpoint(), "run", step)).noise);
    off.ExpectServes(1, {});
  }
}

TEST(NormNoise, APartialVersionDrawsForLayersThatItLeavesOutToo) {
  Rank on;
  on.receiver().ReloadWeights(With(EagerSource(on.Version(1)), kNoise));
  const Weights weights = on.Version(1);
  const auto part = [&] {
    std::vector<NamedTensor> tensors;
    for (const NamedTensor& tensor : testing::TensorsOf(weights)) {
      if (tensor.name.find("down_proj") != std::string::npos) tensors.push_back(tensor);
    }
    const TensorSpec spec{tensors.front().name, tensors.front().tensor.dtype, tensors.front().tensor.shape};
    ReloadSource source = FromIterator(MakeWeightsIterator(std::move(tensors)), {spec});
    source.partial = true;
    return source;
  };
  const Noise other{.sigma = 0.05F, .seed = 5};
  EXPECT_GT(on.receiver().ReloadWeights(With(part(), other)).layers_kept, 0U);
  on.ExpectServes(1, other);
  on.receiver().ReloadWeights(part());
  on.ExpectServes(1, {});
}

TEST(NormNoise, WhatIsPutBackHasTheNoiseThatItHad) {
  Rank on(CommitPolicy::kUndo);
  on.receiver().ReloadWeights(With(EagerSource(on.Version(1)), kNoise));
  const Weights next = on.Version(2);
  const auto commit = [&](const Noise& noise) {
    on.receiver().Stage(With(EagerSource(next), noise));
    on.receiver().Commit();
    on.ExpectServes(2, noise);
    EXPECT_TRUE(on.receiver().RollBack());  // another rank failed
    on.ExpectServes(1, kNoise);
  };
  commit({.sigma = 0.5F, .seed = 3});
  commit({});
  on.receiver().Stage(With(EagerSource(next), {.sigma = 0.25F, .seed = 8}));
  on.receiver().Abort();
  on.ExpectServes(1, kNoise);
}

// Outlives every receiver that uses it: after Restart the same requests get the same memory.
class OutlivingBlocks final : public MemoryResource {
 public:
  std::byte* Allocate(std::size_t bytes) override {
    if (next_ == blocks_.size()) blocks_.emplace_back(bytes);
    EXPECT_EQ(blocks_[next_].size(), bytes);
    return blocks_[next_++].data();
  }
  void Deallocate(std::byte* /*address*/, std::size_t /*bytes*/) noexcept override {}
  void Restart() { next_ = 0; }

 private:
  std::vector<std::vector<std::byte>> blocks_;
  std::size_t next_ = 0;
};

TEST(NormNoise, AProcessThatFollowsOneThatDiedKnowsTheNormsAndWhatWasStaged) {
  OutlivingBlocks norms, staging;
  Rank on(CommitPolicy::kStaged, {.recipe = "fp8_per_channel"}, [&](ReceiverOptions& options) {
    options.norm_memory = &norms;
    options.staging_memory = &staging;
  });
  const auto restart = [&] {
    norms.Restart();
    staging.Restart();
    on.Restart();
  };
  on.receiver().ReloadWeights(With(EagerSource(on.Version(1)), kNoise));
  restart();
  on.ExpectServes(1, kNoise);
  const Noise next{.sigma = 0.02F, .seed = 9};
  on.receiver().Stage(With(EagerSource(on.Version(2)), next));
  const Version staged = on.receiver().staged_version();
  restart();
  on.ExpectServes(1, kNoise);
  on.receiver().AdoptStaged(staged);
  EXPECT_EQ(on.receiver().report().noise, next);
  on.receiver().Commit();
  on.ExpectServes(2, next);
}

TEST(NormNoise, EnginesThatGaveTheirMemoryBackKnowOfNone) {
  Rank on;
  on.receiver().ReloadWeights(With(EagerSource(on.Version(1)), kNoise));
  on.receiver().LoseServed();
  EXPECT_FALSE(on.receiver().noise());
  on.receiver().ReloadWeights(With(EagerSource(on.Version(2)), kNoise));
  on.ExpectServes(2, kNoise);
}

// A norm over all heads, of which every two ranks of four hold the same half.
std::unique_ptr<Module> NormTree(const ParallelConfig& parallel) {
  auto tree = std::make_unique<testing::Tree>();
  LayerContext context;
  context.parallel = parallel;
  tree->Add("norm", std::make_unique<ParallelRMSNorm>(context, 24, 2, 1e-6));
  return tree;
}

TEST(NormNoise, RanksThatHoldPartsOfANormDrawItsChannels) {
  Weights weights;
  weights.AddRandom({"norm.weight", DType::kBF16, {24}}, 1);
  const std::vector<std::byte> whole = SlowNoise(weights.bytes(0), "norm.weight", kNoise);
  for (const int rank : {0, 1, 2, 3}) {
    const ParallelConfig parallel{rank, 4};
    EngineMemory engine(*NormTree(parallel), *MakeRecipe("none"));
    Receiver receiver(NormTree(parallel), parallel, {}, engine.Adopt());
    receiver.ReloadWeights(With(EagerSource(weights), kNoise));
    const auto half = static_cast<std::ptrdiff_t>(whole.size() / 2);
    const auto begin = whole.begin() + (rank < 2 ? 0 : half);
    EXPECT_EQ(engine.Served().at("norm.weight"), std::vector<std::byte>(begin, begin + half)) << rank;
  }
}

TEST(NormNoise, ATreeWithoutNormsRefusesAVersionThatHasSome) {
  const std::unique_ptr<Module> model = testing::RigModel({});
  const EngineMemory engine(*model, *MakeRecipe("none"));
  const KernelLayout layout(LoadPlan::WithoutTensors(*model), LayerRecipes("none", {}), engine.Adopt());
  HostMemory host;
  NormNoise noise(testing::Tree(), layout, nullptr, host);
  noise.Begin(std::nullopt);
  EXPECT_THAT(ErrorOf([&] { noise.Begin(kNoise); }, ErrorCode::kUnsupported), HasSubstr("names no RMS norm"));
}

}  // namespace
}  // namespace layercast
