// What one report says of the channels that several ranks took.
#include "engine_side/server/reload/rank_reports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "layercast/report.h"

namespace layercast {
namespace {

using ::testing::ElementsAre;

ReloadReport Over(const std::string& channel, double gb_per_s) {
  ReloadReport report;
  report.channel = channel;
  report.gb_per_s = gb_per_s;
  report.probed_gb_per_s = 10;
  report.channel_reason = "why " + channel;
  report.publishers = {{.endpoint = "tcp://t:1", .channel = channel, .bytes = 5}};
  return report;
}

// Rank by rank.
std::vector<Json> JsonOf(const std::vector<ReloadReport>& reports) {
  std::vector<Json> all;
  for (const ReloadReport& report : reports) {
    all.push_back(Json::parse(report.ToJson()));
    all.back()["rank"] = all.size() - 1;
  }
  return all;
}

Json ChannelOf(const std::vector<ReloadReport>& reports) { return MergeReports(JsonOf(reports)).at("channel"); }

TEST(RankChannels, OneRanksEntryIsWhatItSaid) {
  ReloadReport report = Over("zmq", 1);
  report.channel_warning = "slow";
  EXPECT_EQ(ChannelOf({report}), Json::parse(report.ToJson()).at("channel"));
}

TEST(RankChannels, RanksThatAgreeHaveTheSlowestOnesEntry) {
  const ReloadReport slow = Over("shm", 2);
  EXPECT_EQ(ChannelOf({Over("shm", 3), slow, Over("shm", 4)}), Json::parse(slow.ToJson()).at("channel"));
  EXPECT_EQ(ChannelOf({Over("shm", 0), slow}), Json::parse(slow.ToJson()).at("channel"));  // nothing came to rank 0
  EXPECT_EQ(ChannelOf({slow, Over("shm", 0)}), Json::parse(slow.ToJson()).at("channel"));
  EXPECT_EQ(ChannelOf({Over("path", 0), Over("path", 0)}).at("name"), "path");
}

TEST(RankChannels, RanksThatDifferAreEachSaidWithTheirReasonAndRate) {
  const std::vector<ReloadReport> reports = {Over("shm", 9), Over("zmq", 2), Over("shm", 8)};
  const Json channel = ChannelOf(reports);
  EXPECT_EQ(channel.at("name"), "shm, zmq");
  EXPECT_EQ(channel.at("gb_per_s"), 2);
  EXPECT_EQ(channel.at("reason"), "the ranks took different channels");
  EXPECT_FALSE(channel.contains("rank"));
  ASSERT_EQ(channel.at("ranks").size(), 3U);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    Json expected = Json::parse(reports[rank].ToJson()).at("channel");
    expected["rank"] = rank;
    EXPECT_EQ(channel["ranks"][rank], expected);
  }
  EXPECT_EQ(MergeReports(JsonOf(reports)).at("publishers").at(0).at("channel"), "shm, zmq");
  EXPECT_EQ(MergeReports(JsonOf(reports)).at("publishers").at(0).at("bytes"), 15);
}

TEST(RankReports, KeptLayersAreThoseOfAllStages) {
  std::vector<ReloadReport> reports = {Over("zmq", 2), Over("zmq", 2), Over("zmq", 2)};
  reports[0].kept = reports[1].kept = {"model.embed_tokens", "model.layers.0-1.mlp"};
  reports[2].kept = {"model.layers.2-3.mlp", "model.embed_tokens"};
  EXPECT_EQ(MergeReports(JsonOf(reports)).at("kept"),
            Json({"model.embed_tokens", "model.layers.0-1.mlp", "model.layers.2-3.mlp"}));
}

TEST(RankReports, NameTheVersionThatAnyRankKnew) {
  std::vector<ReloadReport> reports = {Over("", 0), Over("zmq", 2)};
  reports[1].version.lineage = "run";
  reports[1].version.step = 7;
  EXPECT_EQ(MergeReports(JsonOf(reports)).at("version").at("step"), 7) << "rank 0 gave up before it had asked";
}

Json OfProcess(int pid, const ReloadReport& report) {
  Json json = Json::parse(report.ToJson());
  json["pid"] = pid;
  return json;
}

// A process that was started between staging and committing has staged bytes, and nothing to tell of them.
TEST(RankReports, OfAVersionThatAnotherProcessCommitsSayHowItCame) {
  ReloadReport staged = Over("zmq", 2);
  staged.bytes = staged.bytes_total = 5;
  staged.layers = 3;
  staged.stage_ms = {{"quantize", 7}};
  ReloadReport adopted;
  adopted.served_digest = Digest{1, 2};
  adopted.stage_ms = {{"commit", 1}, {"quantize", 0}};
  const Json whole = WithLater(OfProcess(1, staged), OfProcess(2, adopted));
  EXPECT_EQ(whole.at("channel").at("name"), "zmq");
  EXPECT_EQ(whole.at("bytes"), 5);
  EXPECT_EQ(whole.at("served_digest"), adopted.served_digest.ToHex());
  EXPECT_EQ(whole.at("pid"), 2) << "whose the buffers are";
  EXPECT_EQ(whole.at("stage_ms"), Json({{"quantize", 7.0}, {"commit", 1.0}}));
  ReloadReport later = staged;
  later.served_digest = Digest{3, 4};
  EXPECT_EQ(WithLater(OfProcess(1, staged), OfProcess(1, later)), OfProcess(1, later));
}

TEST(RankReports, WhatServingCostIsTheMostThatARankWasTold) {
  std::vector<ReloadReport> reports = {Over("zmq", 2), Over("zmq", 2)};
  reports[0].publishers[0].serving_core_seconds = 0.25;
  reports[1].publishers[0].serving_core_seconds = 0.5;
  EXPECT_EQ(MergeReports(JsonOf(reports)).at("publishers").at(0).at("serving_core_ms"), 500);
}

TEST(RankReports, ADeltaIsTakenIfAllRanksTakeOneAndEachReasonIsSaidOnce) {
  ReloadReport one = Over("zmq", 1);
  EXPECT_TRUE(MergeReports(JsonOf({one, one})).at("delta").is_null());
  one.delta = DeltaChoice{
      .taken = true, .why = "less time", .dense_bytes = 10, .encoded_bytes = 1, .estimated_dense_ms = 5, .took_ms = 7};
  ReloadReport other = one;
  other.delta->took_ms = 9;
  Json merged = MergeReports(JsonOf({one, other})).at("delta");
  EXPECT_EQ(merged.at("taken"), true);
  EXPECT_EQ(merged.at("why"), "less time");
  EXPECT_EQ(merged.at("dense_bytes"), 20);
  EXPECT_EQ(merged.at("encoded_bytes"), 2);
  EXPECT_EQ(merged.at("took_ms"), 9);
  other.delta->taken = false;
  other.delta->why = "another schedule";
  merged = MergeReports(JsonOf({one, other})).at("delta");
  EXPECT_EQ(merged.at("taken"), false);
  EXPECT_EQ(merged.at("why"), "less time; another schedule");
}

TEST(RankChannels, OneChannelOfTwoLanesIsADifference) {
  ReloadReport tcp = Over("ucx", 3), rdma = Over("ucx", 20);
  tcp.channel_lane = "tcp/eth0";
  rdma.channel_lane = "rc_mlx5";
  const Json channel = ChannelOf({tcp, rdma});
  EXPECT_EQ(channel.at("name"), "ucx");
  EXPECT_EQ(channel.at("lane"), "tcp/eth0, rc_mlx5");
  EXPECT_EQ(channel.at("ranks").size(), 2U);
}

TEST(RankChannels, NoRanksWarningIsLost) {
  ReloadReport warns = Over("shm", 3);
  warns.channel_warning = "it was slow";
  EXPECT_EQ(ChannelOf({Over("shm", 2), warns, Over("shm", 4)}).at("warning"), "rank 1: it was slow");
  EXPECT_EQ(ChannelOf({warns, Over("zmq", 4), warns}).at("warning"), "rank 0: it was slow; rank 2: it was slow");
}

// Reports of ranks that were lost come last, and say what a report says by default.
TEST(RankChannels, ARankThatFailedBeforeItTookOneSaysNothingOfIt) {
  std::vector<Json> reports = JsonOf({ReloadReport(), Over("zmq", 2), Over("shm", 3)});
  std::rotate(reports.begin(), reports.begin() + 1, reports.end());
  std::vector<std::string> taken;
  const Json channel = MergeReports(reports).at("channel");
  for (const Json& of_rank : channel.at("ranks")) {
    taken.push_back(of_rank["rank"].dump() + " " + of_rank["name"].get<std::string>());
  }
  EXPECT_THAT(taken, ElementsAre("1 zmq", "2 shm"));
  EXPECT_EQ(channel.at("name"), "zmq, shm");
  EXPECT_TRUE(IsDataChannel(channel));
}

}  // namespace
}  // namespace layercast
