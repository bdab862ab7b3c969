// What a rank takes over from one that died: what was staged whole, and nothing else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "engine_side/quant/recipes/recipe_table.h"
#include "tests/support/reload/receiver_rig.h"

namespace layercast {
namespace {

using testing::Differences;
using testing::EagerSource;
using testing::ErrorOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::RigOptions;
using testing::Weights;

// Outlives every receiver that uses it: after StartAnew the same requests get the same memory.
class KeptMemory final : public MemoryResource {
 public:
  std::byte* Allocate(std::size_t bytes) override {
    const std::size_t begin =
        std::exchange(used_, used_ + (bytes + kMemoryAlignment - 1) / kMemoryAlignment * kMemoryAlignment);
    if (used_ > memory_.size()) throw Error(ErrorCode::kResourceExhausted, "the test's memory");
    return memory_.data() + begin;
  }
  void Deallocate(std::byte* /*address*/, std::size_t /*bytes*/) noexcept override {}
  void StartAnew() { used_ = 0; }
  std::byte& first_byte() { return *memory_.data(); }

 private:
  std::vector<std::byte> memory_ = std::vector<std::byte>(std::size_t{8} << 20);
  std::size_t used_ = 0;
};

class AdoptStaged : public ::testing::Test {
 protected:
  // Another rank process, over the memory of those before it.
  void Restart() {
    receiver_.reset();
    kept_.StartAnew();
    ReceiverOptions options;
    options.staging_memory = &kept_;
    receiver_ = std::make_unique<Receiver>(testing::RigModel(rig_), ParallelConfig{}, QuantizationConfig{rig_.recipe},
                                           engine_.Adopt(), options);
  }
  Weights Seeded(std::uint32_t seed) const { return testing::RigWeights(rig_, seed); }
  Version Stage(std::uint32_t seed) {
    receiver_->Stage(EagerSource(Seeded(seed)));
    return receiver_->staged_version();
  }
  std::string Refusal(const Version& version, ErrorCode code) {
    const std::string why = ErrorOf([&] { receiver_->AdoptStaged(version); }, code);
    EXPECT_THAT(ErrorOf([&] { receiver_->Commit(); }), HasSubstr("nothing is staged"));
    return why;
  }

  const RigOptions rig_{.recipe = "fp8_per_channel"};
  testing::EngineMemory engine_{*testing::RigModel(rig_), *MakeRecipe(rig_.recipe)};
  KeptMemory kept_;
  std::unique_ptr<Receiver> receiver_;
};

TEST_F(AdoptStaged, TakesWhatAnEarlierProcessHadStaged) {
  Restart();
  const Version staged = Stage(2);
  Restart();
  receiver_->AdoptStaged(staged);
  receiver_->Commit();
  EXPECT_NO_THROW(receiver_->VerifyServed());
  EXPECT_EQ(receiver_->version(), staged);
  EXPECT_THAT(Differences(engine_.Served(), testing::ServedSlowly(rig_, Seeded(2))), IsEmpty());
}

TEST_F(AdoptStaged, OfAFreshReceiverIsRefused) {
  Restart();
  const Version version{.lineage = "run", .step = 7, .digest = {1, 2}};
  EXPECT_THAT(Refusal(version, ErrorCode::kFailedPrecondition),
              HasSubstr("expected " + version.ToString() + ", staged whole, got nothing that is whole"));
}

TEST_F(AdoptStaged, OfAReceiverWithoutMemoryOfItsOwnIsRefused) {
  Receiver receiver(testing::RigModel(rig_), ParallelConfig{}, QuantizationConfig{rig_.recipe}, engine_.Adopt());
  EXPECT_THAT(ErrorOf([&] { receiver.AdoptStaged({}); }, ErrorCode::kFailedPrecondition),
              HasSubstr("got nothing that is whole"));
}

TEST_F(AdoptStaged, OfAnotherVersionIsRefused) {
  Restart();
  Version version = Stage(2);
  Restart();
  version.step += 40;
  EXPECT_THAT(Refusal(version, ErrorCode::kFailedPrecondition), HasSubstr("got another version, of step 0"));
}

// As one that is killed leaves it: neither the version before it, nor the one that was coming.
TEST_F(AdoptStaged, OfAVersionThatWasHalfOverwrittenIsRefused) {
  Restart();
  const Version before = Stage(1);
  Restart();
  receiver_->record_metadata_for_reloading();
  const Weights next = Seeded(2);
  receiver_->initialize_layerwise_reload(testing::SpecsOf(next));
  std::vector<NamedTensor> tensors = testing::TensorsOf(next);
  tensors.resize(tensors.size() / 2);
  receiver_->load_weights(*MakeWeightsIterator(tensors));
  Restart();
  EXPECT_THAT(Refusal(before, ErrorCode::kFailedPrecondition), HasSubstr("got nothing that is whole"));
}

TEST_F(AdoptStaged, OfBytesThatChangedSinceIsRefused) {
  Restart();
  const Version staged = Stage(2);
  kept_.first_byte() ^= std::byte{1};
  Restart();
  EXPECT_THAT(Refusal(staged, ErrorCode::kCorrupt), HasSubstr("as it was staged: digest expected "));
}

}  // namespace
}  // namespace layercast
