#include "engine_side/engine/cpu/blocks/router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace layercast {
namespace {

using ::testing::ElementsAre;

std::vector<std::size_t> ExpertsOf(const std::vector<Choice>& choices) {
  std::vector<std::size_t> experts;
  for (const Choice& choice : choices) experts.push_back(choice.expert);
  return experts;
}

float Sigmoid(float x) { return 1.0F / (1.0F + std::exp(-x)); }

TEST(ChooseExperts, PicksTheLargestByTheirShareOfAll) {
  const std::vector<float> logits = {0.0F, std::log(2.0F), std::log(4.0F), std::log(1.0F)};  // shares of 8
  const std::vector<Choice> choices = ChooseExperts({.top_k = 2}, logits, {});
  EXPECT_THAT(ExpertsOf(choices), ElementsAre(2U, 1U));
  EXPECT_FLOAT_EQ(choices[0].weight, 0.5F);
  EXPECT_FLOAT_EQ(choices[1].weight, 0.25F);
}

TEST(ChooseExperts, OfEqualOnesTheFirst) {
  EXPECT_THAT(ExpertsOf(ChooseExperts({.top_k = 2}, std::vector<float>{1.0F, 2.0F, 2.0F, 2.0F}, {})),
              ElementsAre(1U, 2U));
}

TEST(ChooseExperts, NormalizesAndScales) {
  const Routing routing{.normalize = true, .top_k = 2, .scale = 3.0};
  const std::vector<Choice> choices =
      ChooseExperts(routing, std::vector<float>{0.0F, std::log(2.0F), std::log(4.0F)}, {});
  EXPECT_FLOAT_EQ(choices[0].weight, 2.0F);
  EXPECT_FLOAT_EQ(choices[1].weight, 1.0F);
}

TEST(ChooseExperts, TheBiasChangesWhatIsPickedAndNotWhatItCounts) {
  const Routing routing{.score = Routing::Score::kSigmoid, .top_k = 1};
  const std::vector<Choice> choices =
      ChooseExperts(routing, std::vector<float>{1.0F, 0.0F, -1.0F}, std::vector<float>{0.0F, 0.0F, 2.0F});
  EXPECT_THAT(ExpertsOf(choices), ElementsAre(2U));
  EXPECT_FLOAT_EQ(choices[0].weight, Sigmoid(-1.0F));
}

TEST(ChooseExperts, OnlyThoseOfTheGroupsWhoseTwoBestAreBest) {
  Routing routing{.score = Routing::Score::kSigmoid, .top_k = 2, .num_groups = 3, .top_groups = 1};
  // The best of all is in a group whose second is poor.
  const std::vector<float> logits = {3.0F, -5.0F, -5.0F, 2.0F, 1.0F, 0.0F, -1.0F, -1.0F, -5.0F};
  EXPECT_THAT(ExpertsOf(ChooseExperts(routing, logits, {})), ElementsAre(3U, 4U));
  routing.top_groups = 2;
  EXPECT_THAT(ExpertsOf(ChooseExperts(routing, logits, {})), ElementsAre(0U, 3U));
  routing.top_groups = 1;
  routing.group_best = 1;  // now the best one alone counts
  EXPECT_THAT(ExpertsOf(ChooseExperts(routing, logits, {})), ElementsAre(0U, 1U));
}

}  // namespace
}  // namespace layercast
