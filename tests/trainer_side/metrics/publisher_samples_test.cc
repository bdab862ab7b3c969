// What a publisher says of how far engines are behind, and of what it keeps.
#include "trainer_side/metrics/publisher_samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace layercast::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Labels = std::vector<std::string>;

wire::KeptVersion KeptAt(std::uint64_t step, std::uint64_t published_ms, const std::string& lineage = "run") {
  wire::KeptVersion version;
  version.lineage = lineage;
  version.step = step;
  version.published_ms = published_ms;
  return version;
}

// The values of a family, by their labels.
std::vector<std::pair<Labels, double>> ValuesOf(const PublisherLook& look, std::string_view family) {
  std::vector<std::pair<Labels, double>> values;
  const MetricSamples all = PublisherSamples(look);
  for (const auto& [place, samples] : all.families()) {
    if (MetricFamilies()[place].name != family) continue;
    for (const MetricSamples::Sample& sample : samples) values.emplace_back(sample.labels, sample.value);
  }
  return values;
}

PublisherLook LookAtFour() {
  PublisherLook look;
  look.versions.versions = {KeptAt(1, 1000), KeptAt(4, 2000), KeptAt(2, 2500, "draft"), KeptAt(6, 4000)};
  look.now_ms = 9000;
  return look;
}

void AddTakerAt(PublisherLook& look, const std::string& lineage, std::uint64_t step) {
  TakerCount& taker = look.takers.takers.emplace_back();
  taker.number = look.takers.takers.size() - 1;
  taker.steps[lineage] = step;
}

TEST(PublisherSamplesTest, AnEngineIsBehindByTheStepsAndTheTimeOfWhatItHasNotTaken) {
  PublisherLook look = LookAtFour();
  for (const std::uint64_t step : {1, 4, 6, 7}) AddTakerAt(look, "run", step);
  EXPECT_THAT(ValuesOf(look, "layercast_publisher_peer_behind_steps"),
              ElementsAre(std::pair(Labels{"0", "run"}, 5.0), std::pair(Labels{"1", "run"}, 2.0),
                          std::pair(Labels{"2", "run"}, 0.0), std::pair(Labels{"3", "run"}, 0.0)));
  EXPECT_THAT(ValuesOf(look, "layercast_publisher_peer_behind_seconds"),
              ElementsAre(std::pair(Labels{"0", "run"}, 7.0), std::pair(Labels{"1", "run"}, 5.0),
                          std::pair(Labels{"2", "run"}, 0.0), std::pair(Labels{"3", "run"}, 0.0)));
}

TEST(PublisherSamplesTest, WhatIsEvictedOrShadowedLeavesNobodyBehind) {
  PublisherLook look = LookAtFour();
  look.versions.versions[1].evicted = true;
  look.versions.versions[3].shadowed = true;
  look.versions.versions[0].pinned = true;
  AddTakerAt(look, "run", 1);
  EXPECT_THAT(ValuesOf(look, "layercast_publisher_peer_behind_steps"), ElementsAre(std::pair(Labels{"0", "run"}, 0.0)));
  EXPECT_THAT(ValuesOf(look, "layercast_publisher_offered_step"),
              ElementsAre(std::pair(Labels{"draft"}, 2.0), std::pair(Labels{"run"}, 1.0)));
  EXPECT_THAT(
      ValuesOf(look, "layercast_publisher_versions"),
      ElementsAre(std::pair(Labels{"kept"}, 3.0), std::pair(Labels{"pinned"}, 1.0), std::pair(Labels{"evicted"}, 1.0)));
}

TEST(PublisherSamplesTest, BeforeAnythingIsPublishedThereIsNoStepAndNoAge) {
  EXPECT_THAT(ValuesOf({}, "layercast_publisher_offered_step"), IsEmpty());
  EXPECT_THAT(ValuesOf({}, "layercast_publisher_version_age_seconds"), ElementsAre(std::pair(Labels{}, 0.0)));
  EXPECT_THAT(ValuesOf(LookAtFour(), "layercast_publisher_version_age_seconds"), ElementsAre(std::pair(Labels{}, 5.0)));
}

}  // namespace
}  // namespace layercast::testing
