// The receiver's calls in any order: each is either right or a defined error, and whatever went before, the next whole
// reload works.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "layercast/error.h"
#include "layercast/model/registry.h"
#include "layercast/model_description.h"
#include "tests/support/forked_child.h"
#include "tests/support/reload/receiver_rig.h"

namespace layercast {
namespace {

using testing::Differences;
using testing::EagerSource;
using testing::ErrorOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ReceiverRig;
using testing::ServedBytes;
using testing::SpecsOf;
using testing::TensorsOf;
using testing::Weights;

TEST(ReceiverMisuse, EachCallOutOfItsTurnSaysWhichOneIsMissing) {
  ReceiverRig rig;
  Receiver& receiver = *rig.receiver;
  const Weights a = rig.Version(1);
  const auto initialize = [&] { receiver.initialize_layerwise_reload(SpecsOf(a)); };
  const auto load = [&] { receiver.load_weights(*a.Stream()); };
  const auto finalize = [&] { receiver.finalize_layerwise_processing(); };
  EXPECT_THAT(ErrorOf(initialize), HasSubstr("record_metadata_for_reloading must be called before"));
  EXPECT_THAT(ErrorOf(load), HasSubstr("initialize_layerwise_reload must be called before load_weights"));
  EXPECT_THAT(ErrorOf(finalize), HasSubstr("without a matching initialize_layerwise_reload"));
  EXPECT_THAT(ErrorOf([&] { receiver.Commit(); }), HasSubstr("nothing is staged"));
  EXPECT_THAT(ErrorOf([&] { receiver.VerifyServed(); }), HasSubstr("nothing was committed"));
  EXPECT_THAT(ErrorOf([&] { (void)receiver.staged_version(); }), HasSubstr("nothing is staged"));
  EXPECT_THAT(ErrorOf([&] { receiver.ReloadWeights(FromOrigin()); }), HasSubstr("no checkpoint to re-read"));
  receiver.Abort();
  receiver.record_metadata_for_reloading();
  EXPECT_THAT(ErrorOf([&] { receiver.initialize_layerwise_reload(); }), HasSubstr("needs the specs"));
  initialize();
  EXPECT_THAT(ErrorOf(initialize), HasSubstr("already active"));
  EXPECT_THAT(ErrorOf([&] { receiver.record_metadata_for_reloading(); }), HasSubstr("not while a reload is active"));
  EXPECT_THAT(ErrorOf([&] { receiver.ReloadWeights(EagerSource(a)); }), HasSubstr("already active"));
  EXPECT_THAT(ErrorOf([&] { receiver.AdoptStaged({}); }), HasSubstr("already active"));
  EXPECT_THAT(ErrorOf([&] { receiver.Commit(); }), HasSubstr("nothing is staged"));
  load();
  EXPECT_THAT(ErrorOf(load), HasSubstr("came twice"));
  EXPECT_THAT(ErrorOf(finalize), HasSubstr("without a matching")) << "a failed load ends the reload";
  initialize();
  load();
  finalize();
  EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(a)), IsEmpty());
}

TEST(ReceiverMisuse, ACallDuringACallIsRefusedAndHarmsNothing) {
  ReceiverRig rig;
  Receiver& receiver = *rig.receiver;
  const Weights a = rig.Version(1);
  std::vector<std::string> refused;
  const auto note = [&](const std::function<void()>& call) {
    refused.push_back(ErrorOf(call, ErrorCode::kFailedPrecondition));
  };
  auto next = [&, at = std::size_t{0}]() mutable -> std::optional<NamedTensor> {
    if (at == 1) {
      note([&] { receiver.Abort(); });
      note([&] { receiver.Commit(); });
      note([&] { receiver.ReloadWeights(EagerSource(a)); });
    }
    if (at == a.size()) return std::nullopt;
    return a.at(at++);
  };
  receiver.ReloadWeights(FromIterator(MakeWeightsIterator(std::move(next)), SpecsOf(a)));
  EXPECT_EQ(refused.size(), 3U);
  EXPECT_THAT(refused, ::testing::Each(HasSubstr("was called during another call")));
  EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(a)), IsEmpty());
}

TEST(ReceiverMisuse, AForkedChildCannotUseItAndEndsAllTheSame) {
  ReceiverRig rig;
  EXPECT_TRUE(testing::IsTrueInAForkedChild([&] {
    bool refused = false;
    try {
      rig.receiver->Abort();
    } catch (const Error& error) {
      refused = error.code() == ErrorCode::kFailedPrecondition;
    }
    rig.receiver.reset();
    return refused;
  }));
  rig.receiver->Abort();
}

// With another rank's tree it would take that one's slices into buffers that fit them, and nobody would see it.
TEST(ReceiverMisuse, ATreeOfAnotherRankIsRefused) {
  const ModelDescription model = ModelDescription::FromJson(
      R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 64, "hidden_size": 16,
          "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2})");
  const auto receive = [&](const ParallelConfig& of_tree, const ParallelConfig& of_receiver) {
    Receiver(ModelRegistry::Builtin().Build(model, of_tree), of_receiver, {}, CapturedBuffers::Adopt({}));
  };
  EXPECT_NO_THROW(receive({.tp_rank = 1, .tp_size = 2}, {.tp_rank = 1, .tp_size = 2}));
  EXPECT_THAT(ErrorOf([&] { receive({.tp_rank = 0, .tp_size = 2}, {.tp_rank = 1, .tp_size = 2}); }),
              HasSubstr("expected one of tp_rank 1 of 2, pp_rank 0 of 1, got one of tp_rank 0 of 2, pp_rank 0 of 1"));
  EXPECT_THAT(ErrorOf([&] { receive({}, {.tp_rank = 1, .tp_size = 2}); }), HasSubstr("got one of tp_rank 0 of 1"));
  const ParallelConfig experts{.tp_rank = 1, .tp_size = 2, .ep_rank = 1, .ep_size = 2};
  EXPECT_NO_THROW(receive(experts, experts));
  EXPECT_THAT(ErrorOf([&] { receive({.tp_rank = 1, .tp_size = 2, .ep_rank = 0, .ep_size = 2}, experts); }),
              AllOf(HasSubstr("ep_rank 1 of 2, experts contiguous, got one of"), HasSubstr("ep_rank 0 of 2")));
}

// What the calls should do, as simply as it can be said.
struct Model {
  enum class Phase { kIdle, kReceiving, kStaged } phase = Phase::kIdle;
  bool recorded = false;
  int served = -1;              // the version in the engine's memory
  int staged = -1;              // where phase is kStaged
  int receiving = -1;           // the version that load_weights is given
  std::vector<bool> here = {};  // its tensors
};

class Walk {
 public:
  explicit Walk(std::uint32_t seed) : random_(seed) {
    for (std::uint32_t i = 0; i < 3; ++i) {
      versions_.push_back(rig_.Version(i + 1));
      expected_.push_back(rig_.Expected(versions_.back()));
    }
    expected_before_ = rig_.engine.Served();
  }

  void Step() {
    const int version = static_cast<int>(random_() % 3);
    switch (random_() % 9) {
      case 0: return Expect(Record(), [&] { rig_.receiver->record_metadata_for_reloading(); });
      case 1: return Expect(Initialize(), [&] { rig_.receiver->initialize_layerwise_reload(SpecsOf(versions_[0])); });
      case 2:
      case 3: return Load(version, random_() % 4 == 0);
      case 4: return Expect(Finalize(), [&] { rig_.receiver->finalize_layerwise_processing(); });
      case 5: return Expect(Stage(version), [&] { rig_.receiver->Stage(EagerSource(Get(version))); });
      case 6: return StageBroken(version);
      case 7: return Expect(Commit(), [&] { rig_.receiver->Commit(); });
      default: return Expect(Abort(), [&] { rig_.receiver->Abort(); });
    }
  }

  void ReloadAfterAll() {
    rig_.receiver->Abort();
    rig_.receiver->ReloadWeights(EagerSource(versions_[1]));
    EXPECT_THAT(Differences(rig_.engine.Served(), expected_[1]), IsEmpty());
  }

 private:
  using Phase = Model::Phase;

  const Weights& Get(int version) const { return versions_[static_cast<std::size_t>(version)]; }

  template <class Call>
  void Expect(bool right, const Call& call) {
    const std::string error = ErrorOf(call);
    ASSERT_EQ(error == "no error", right) << error;
    const ServedBytes& served =
        model_.served < 0 ? expected_before_ : expected_[static_cast<std::size_t>(model_.served)];
    ASSERT_THAT(Differences(rig_.engine.Served(), served), IsEmpty());
  }

  bool Record() {
    if (model_.phase != Phase::kIdle) return false;
    return model_.recorded = true;
  }
  bool Initialize() {
    if (!model_.recorded || model_.phase == Phase::kReceiving) return false;
    model_.phase = Phase::kReceiving;
    model_.receiving = -1;
    model_.here.assign(versions_[0].size(), false);
    return true;
  }
  // Some of a version's tensors, mostly those that are still missing.
  void Load(int version, bool also_repeat) {
    if (model_.receiving >= 0) version = model_.receiving;
    std::vector<std::size_t> indices;
    bool right = model_.phase == Phase::kReceiving;
    for (std::size_t i = 0; right && i < model_.here.size(); ++i) {
      const bool take = random_() % 4 != 0 && (!model_.here[i] || also_repeat);
      if (take) indices.push_back(i);
    }
    const bool was_receiving = right;
    for (const std::size_t i : indices) right = right && !model_.here[i];
    if (was_receiving) {
      model_.receiving = version;
      for (const std::size_t i : indices) model_.here[i] = true;
      if (!right) model_.phase = Phase::kIdle;
    }
    Expect(right, [&] { rig_.receiver->load_weights(*Get(version).Stream(indices)); });
  }
  bool Finalize() {
    if (model_.phase != Phase::kReceiving) return false;
    model_.phase = Phase::kIdle;
    if (std::ranges::count(model_.here, false) != 0) return false;
    model_.served = model_.receiving;
    return true;
  }
  bool Stage(int version) {
    if (model_.phase == Phase::kReceiving) return false;
    model_.phase = Phase::kStaged;
    model_.staged = version;
    return true;
  }
  void StageBroken(int version) {
    std::vector<NamedTensor> tensors = TensorsOf(Get(version));
    tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(random_() % tensors.size()));
    if (model_.phase != Phase::kReceiving) model_.phase = Phase::kIdle;
    Expect(false, [&] { rig_.receiver->Stage(FromIterator(MakeWeightsIterator(tensors), SpecsOf(versions_[0]))); });
  }
  bool Commit() {
    if (model_.phase != Phase::kStaged) return false;
    model_.phase = Phase::kIdle;
    model_.served = model_.staged;
    return true;
  }
  bool Abort() {
    model_.phase = Phase::kIdle;
    return true;
  }

  ReceiverRig rig_{{.recipe = "fp8_per_tensor"}};
  std::mt19937 random_;
  std::vector<Weights> versions_;
  std::vector<ServedBytes> expected_;
  ServedBytes expected_before_;
  Model model_;
};

TEST(ReceiverMisuse, AnyOrderOfCallsDoesWhatTheModelSays) {
  for (std::uint32_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Walk walk(seed);
    for (int step = 0; step < 60 && !::testing::Test::HasFatalFailure(); ++step) walk.Step();
    walk.ReloadAfterAll();
  }
}

}  // namespace
}  // namespace layercast
