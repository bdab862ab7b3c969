// Between Stage and Commit a receiver that writes layer by layer lets go of its publisher, which may come back as
// another: what was planned and scaled for the first offer must not be filled with the bytes of a second.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "layercast/publisher.h"
#include "tests/support/reload/receiver_rig.h"

namespace layercast {
namespace {

using testing::Differences;
using testing::ErrorOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ReceiverRig;

// A publisher that is started anew at the same endpoint, each time with a version of the same name.
class RestartedPublisher {
 public:
  void Publish(std::vector<NamedTensor> tensors, const std::string& config = {}) {
    publisher_.reset();
    publisher_ = std::make_unique<Publisher>(PublisherOptions{.endpoint = endpoint_});
    std::vector<TensorSpec> specs;
    for (const NamedTensor& tensor : tensors) specs.push_back({tensor.name, tensor.tensor.dtype, tensor.tensor.shape});
    Weights weights = Weights::Once(std::move(specs), MakeWeightsIterator(std::move(tensors)));
    weights.config = config;
    (void)publisher_->Publish({.lineage = "run", .step = 7}, std::move(weights));
  }
  ReloadSource Source() const { return FromPublisher(endpoint_, "run", 7); }

 private:
  const TempFolder folder_;
  const std::string endpoint_ = "ipc://" + (folder_ / "publisher").string();  // a port might be another's by then
  std::unique_ptr<Publisher> publisher_;
};

class ReceiverReach : public ::testing::TestWithParam<CommitPolicy> {
 protected:
  ReceiverReach() {
    publisher_.Publish(testing::TensorsOf(first_));
    rig_.receiver->SetChannel("inproc");
    rig_.receiver->Stage(publisher_.Source());
  }
  std::string Refusal() {
    return ErrorOf([&] { rig_.receiver->Commit(); }, ErrorCode::kFailedPrecondition);
  }

  ReceiverRig rig_{{.recipe = "fp8_per_tensor"}, true, false, GetParam()};
  const testing::Weights first_ = rig_.Version(1);
  const testing::Weights second_ = rig_.Version(2);
  const testing::ServedBytes untouched_ = rig_.engine.Served();
  RestartedPublisher publisher_;
};

TEST_P(ReceiverReach, OtherBytesOfTheSameNameAreRefusedHoweverOftenItIsTried) {
  publisher_.Publish(testing::TensorsOf(second_));
  for (int attempt = 0; attempt < 3; ++attempt) EXPECT_THAT(Refusal(), HasSubstr("expected to find run@7"));
  EXPECT_THAT(Differences(rig_.engine.Served(), untouched_), IsEmpty());
  rig_.receiver->ReloadWeights(publisher_.Source());
  EXPECT_THAT(Differences(rig_.engine.Served(), rig_.Expected(second_)), IsEmpty());
}

TEST_P(ReceiverReach, TheSameBytesInAnotherOrderAreRefusedAndTheOldOrderIsTaken) {
  std::vector<NamedTensor> reversed = testing::TensorsOf(first_);
  std::ranges::reverse(reversed);
  publisher_.Publish(std::move(reversed));
  for (int attempt = 0; attempt < 2; ++attempt) EXPECT_THAT(Refusal(), HasSubstr("its tensors in another order"));
  EXPECT_THAT(Differences(rig_.engine.Served(), untouched_), IsEmpty());
  publisher_.Publish(testing::TensorsOf(first_));
  rig_.receiver->Commit();
  EXPECT_THAT(Differences(rig_.engine.Served(), rig_.Expected(first_)), IsEmpty());
}

TEST_P(ReceiverReach, TheSameBytesWithAnotherConfigurationAreRefused) {
  publisher_.Publish(testing::TensorsOf(first_), R"({"rope_theta": 77})");
  EXPECT_THAT(Refusal(), HasSubstr("or with another configuration"));
  EXPECT_THAT(Differences(rig_.engine.Served(), untouched_), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Layerwise, ReceiverReach, ::testing::ValuesIn(testing::kLayerwise),
                         [](const auto& policy) { return std::string(CommitPolicyName(policy.param)); });

}  // namespace
}  // namespace layercast
