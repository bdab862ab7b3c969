// What Perfetto and collectors are given: the files and bodies, by their fields.
#include "src/trace/chrome_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "layercast/error.h"
#include "src/trace/otlp_spans.h"
#include "src/trace/trace_context.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_folder.h"

namespace layercast {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

std::vector<ProcessTrace> Two() {
  ProcessTrace engine{.name = "engine tcp://a:1", .service = "engine", .pid = 7, .span = 2, .parent = 1};
  engine.facts = {{"error", "no \"bytes\""}};
  engine.lanes = {TraceLane("reload", TraceKind::kCall, {{1'000, 9'000, 8'000, 1}})};
  ProcessTrace rank{.name = "rank 0", .service = "rank", .pid = 7, .span = 3, .parent = 2};
  rank.lanes = {TraceLane("receive", TraceKind::kStage, {{2'000, 4'500, 2'000, 3, "chunk 0", "chunk 2"}}),
                TraceLane("chunks", TraceKind::kChunks,
                          {{2'000, 4'000, 2'000, 1, "chunk 0"}, {2'500, 4'500, 2'000, 1, "chunk 1"}})};
  return {engine, rank};
}

Json Events(const std::string& text, const std::string& phase) {
  const Json trace = Json::parse(text);
  Json events = Json::array();
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == phase) events.push_back(event);
  }
  return events;
}

TEST(ChromeTrace, HasARowForEachProcessThoughTheirNumbersAreTheSame) {
  const std::string text = ChromeTrace(Two(), 1'000, {{"trace_id", "ab"}});
  std::map<int, std::string> names;
  for (const Json& event : Events(text, "M")) {
    if (event["name"] == "process_name") names[event["pid"].get<int>()] = event["args"]["name"].get<std::string>();
  }
  EXPECT_EQ(names, (std::map<int, std::string>{{1, "engine tcp://a:1"}, {2, "rank 0"}}));
  EXPECT_EQ(Json::parse(text)["otherData"]["trace_id"], "ab");
}

TEST(ChromeTrace, TellsSpansInMicrosecondsSinceTheBeginning) {
  const Json spans = Events(ChromeTrace(Two(), 1'000, {}), "X");
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_EQ(spans[0]["name"], "reload");
  EXPECT_EQ(spans[0]["ts"], 0);
  EXPECT_EQ(spans[0]["dur"], 8);
  EXPECT_EQ(spans[1]["ts"], 1);
  EXPECT_EQ(spans[1]["dur"], 2.5);
  EXPECT_EQ(spans[1]["args"], (Json{{"of", "chunk 0"}, {"to", "chunk 2"}, {"spans", 3}, {"busy_ms", 0.002}}));
}

TEST(ChromeTrace, TellsSpansThatOverlapByTheirTwoEnds) {
  const std::string text = ChromeTrace(Two(), 0, {});
  const Json begins = Events(text, "b");
  const Json ends = Events(text, "e");
  ASSERT_EQ(begins.size(), 2U);
  ASSERT_EQ(ends.size(), 2U);
  EXPECT_EQ(begins[1]["name"], "chunk 1");
  EXPECT_EQ(begins[1]["id"], ends[1]["id"]);
  EXPECT_NE(begins[0]["id"], begins[1]["id"]);
  EXPECT_EQ(begins[1]["ts"], 2.5);
  EXPECT_EQ(ends[1]["ts"], 4.5);
}

TEST(TraceFile, IsMadeBeforeAnythingIsTracedOrRefusedByName) {
  const TempFolder folder;
  const std::string path = folder / "sync.json";
  TraceFile file(path);
  EXPECT_TRUE(std::filesystem::exists(path));
  file.Write("{}");
  EXPECT_EQ(folder.Read("sync.json"), "{}");
  const auto nowhere = [&] { TraceFile(folder / "nowhere/sync.json"); };
  EXPECT_THAT(testing::ErrorOf(nowhere, ErrorCode::kInvalidArgument),
              HasSubstr("nowhere/sync.json': No such file or directory"));
}

TEST(OtlpBody, HasAResourceForEachProcessAndOneSpanOverAllItsOthers) {
  const TraceContext trace = *ParseTraceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
  const Json body = Json::parse(OtlpBody(Two(), trace, 1'000'000));
  ASSERT_EQ(body["resourceSpans"].size(), 2U);
  const Json& engine = body["resourceSpans"][0]["scopeSpans"][0]["spans"];
  ASSERT_EQ(engine.size(), 2U);
  EXPECT_EQ(engine[0]["name"], "reload");
  EXPECT_EQ(engine[0]["traceId"], "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(engine[0]["parentSpanId"], "0000000000000002");
  EXPECT_EQ(engine[1]["spanId"], "0000000000000002");
  EXPECT_EQ(engine[1]["parentSpanId"], "0000000000000001");
  EXPECT_EQ(engine[1]["startTimeUnixNano"], "1001000");
  EXPECT_EQ(engine[1]["endTimeUnixNano"], "1009000");
  EXPECT_EQ(engine[1]["status"], (Json{{"code", 2}, {"message", "no \"bytes\""}}));
  const Json& rank = body["resourceSpans"][1]["scopeSpans"][0]["spans"];
  EXPECT_EQ(rank.size(), 4U);
  EXPECT_EQ(rank[3]["parentSpanId"], "0000000000000002");  // the engine's
}

}  // namespace
}  // namespace layercast
