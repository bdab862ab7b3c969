// The table of metrics: its names, its labels, and what may be said of them.
#include "src/metrics/metric_families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "src/metrics/durations.h"
#include "src/metrics/metric_samples.h"
#include "tests/support/error_of.h"

namespace layercast::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(MetricFamilyTable, HasNamesAsPrometheusWantsThem) {
  std::set<std::string_view> seen;
  for (const MetricFamily& family : MetricFamilies()) {
    SCOPED_TRACE(family.name);
    EXPECT_TRUE(family.name.starts_with("layercast_"));
    EXPECT_EQ(family.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_"), std::string_view::npos);
    EXPECT_EQ(family.name.ends_with("_total"), family.kind == MetricKind::kCounter);
    EXPECT_TRUE(family.kind != MetricKind::kDurations || family.name.ends_with("_seconds"));
    EXPECT_TRUE(family.help.ends_with('.'));
    EXPECT_TRUE(seen.insert(family.name).second) << "twice";
  }
}

TEST(MetricFamilyTable, LabelsAreNamedOneByOne) {
  EXPECT_THAT((MetricFamily{"", MetricKind::kGauge, "channel peer", ""}.label_names()), ElementsAre("channel", "peer"));
  EXPECT_THAT((MetricFamily{"", MetricKind::kGauge, "rank", ""}.label_names()), ElementsAre("rank"));
  EXPECT_THAT((MetricFamily{"", MetricKind::kGauge, "", ""}.label_names()), IsEmpty());
}

TEST(MetricSamplesTest, WhatIsNotInTheTableIsABug) {
  MetricSamples samples;
  EXPECT_NE(ErrorOf([&] { samples.Add("layercast_engine_speed", 1); }, ErrorCode::kInternal), "no error");
  EXPECT_NE(ErrorOf([&] { samples.Add("layercast_engine_state", 1); }, ErrorCode::kInternal), "no error")
      << "without its label";
  EXPECT_NE(ErrorOf([&] { samples.Add("layercast_engine_sync_seconds", 1); }, ErrorCode::kInternal), "no error")
      << "a value for a histogram";
}

TEST(MetricSamplesTest, EachCodeHasAValueAlsoOneThatNeverCame) {
  MetricSamples samples;
  samples.AddByCode("layercast_relay_refusals_total", {"1"}, {{ErrorCode::kCorrupt, 3}});
  const auto& values = samples.families().begin()->second;
  ASSERT_EQ(values.size(), static_cast<std::size_t>(ErrorCode::kPermissionDenied) + 1);
  for (const MetricSamples::Sample& sample : values) {
    EXPECT_EQ(sample.labels.at(0), "1");
    EXPECT_EQ(sample.value, sample.labels.at(1) == "corrupt" ? 3 : 0) << sample.labels.at(1);
  }
}

TEST(DurationsTest, ABucketCountsWhatIsAtMostItsBound) {
  Durations durations;
  for (const double seconds : {0.0005, 0.001, 0.0011, 300.0, 301.0}) durations.Add(seconds);
  EXPECT_EQ(durations.count(), 5U);
  EXPECT_DOUBLE_EQ(durations.sum(), 601.0026);
  EXPECT_EQ(durations.AtMost(0), 2U);
  EXPECT_EQ(durations.AtMost(1), 3U);
  EXPECT_EQ(durations.AtMost(Durations::kBounds.size() - 2), 3U);
  EXPECT_EQ(durations.AtMost(Durations::kBounds.size() - 1), 4U);
}

}  // namespace
}  // namespace layercast::testing
