#include "src/control/progress_forms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace layercast {
namespace {

const Version kUnderWay{.lineage = "run", .step = 3, .digest = {.high = 1, .low = 2}};

ReloadProgress Rank(const std::string& stage, std::uint64_t bytes, std::uint64_t total) {
  return {.version = kUnderWay, .stage = stage, .bytes = bytes, .bytes_total = total, .layers = 1, .layers_total = 4};
}

TEST(ProgressForms, ComeBackAsTheyWere) {
  const ReloadProgress progress = Rank("receive", 12, ~std::uint64_t{0});
  EXPECT_EQ(ProgressFromJson(ProgressToJson(progress)), progress);
  const ReloadProgress unnamed{.stage = "connect"};
  EXPECT_EQ(ProgressToJson(unnamed)["version"], nullptr);
  EXPECT_EQ(ProgressFromJson(ProgressToJson(unnamed)), unnamed);
}

TEST(ProgressForms, ATotalIsKnownOnceThatOfEveryRankIs) {
  for (const char* early : {"", "connect", "plan"}) {
    const std::vector<ReloadProgress> ranks = {Rank("receive", 50, 100), {.stage = early}};
    const ReloadProgress all = ProgressOfAll(ranks);
    EXPECT_EQ(all.bytes, 50U);
    EXPECT_EQ(all.bytes_total, 0U) << early;
    EXPECT_EQ(all.layers_total, 0U) << early;
    EXPECT_EQ(all.stage, early);
    EXPECT_EQ(all.version, kUnderWay);
  }
  const std::vector<ReloadProgress> ranks = {Rank("receive", 50, 100), Rank("verify", 0, 0)};  // it takes no part
  EXPECT_EQ(ProgressOfAll(ranks).bytes_total, 100U);
  EXPECT_EQ(ProgressOfAll(ranks).layers_total, 8U);
}

TEST(ProgressForms, TheSlowestIsTheRankWithTheLeastShare) {
  const std::vector<ReloadProgress> ranks = {Rank("receive", 50, 100), Rank("receive", 60, 200), Rank("commit", 9, 9)};
  EXPECT_EQ(Slowest(ranks), 1U);
  EXPECT_EQ(Slowest(std::vector<ReloadProgress>(3)), 0U);
  EXPECT_EQ(ProgressOfAll({}), ReloadProgress());
}

TEST(ProgressForms, AnEnginesStatusHasItsRanks) {
  const std::vector<ReloadProgress> ranks = {Rank("receive", 50, 100), Rank("receive", 60, 200)};
  const Json status = {{"state", "receiving"}, {"progress", EngineProgressToJson(ranks)}};
  EXPECT_EQ(status["progress"]["bytes"], 110);
  EXPECT_EQ(
      status["progress"]["ranks"][1],
      (Json{
          {"rank", 1}, {"stage", "receive"}, {"bytes", 60}, {"bytes_total", 200}, {"layers", 1}, {"layers_total", 4}}));
  const EngineProgress read = EngineProgressFromStatus(status);
  EXPECT_EQ(read.state, "receiving");
  EXPECT_EQ(read.all, ProgressOfAll(ranks));
  ASSERT_EQ(read.ranks.size(), 2U);
  EXPECT_EQ(read.ranks[1].bytes, 60U);
}

}  // namespace
}  // namespace layercast
