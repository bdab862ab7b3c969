#include "src/session/traces/session_traces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

namespace layercast {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

wire::Hello HelloOf(std::uint64_t attempt, std::uint32_t rank) {
  wire::Hello hello;
  hello.engine = "engine-0";
  hello.attempt = attempt;
  hello.rank = rank;
  return hello;
}

ProcessTrace TraceIn(const wire::SessionTrace& answer) {
  const std::string text(reinterpret_cast<const char*>(answer.trace.data()), answer.trace.size());
  return ProcessTraceFromJson(nlohmann::ordered_json::parse(text));
}

std::vector<std::string> LanesOf(const ProcessTrace& trace) {
  std::vector<std::string> names;
  for (const TraceLane& lane : trace.lanes) names.push_back(lane.name());
  return names;
}

struct Collector {
  SessionTraces::Send Taker() {
    return [this](ProcessTrace trace, const TraceContext& of) {
      traces.push_back(std::move(trace));
      contexts.push_back(of);
    };
  }
  std::vector<ProcessTrace> traces;
  std::vector<TraceContext> contexts;
};

TEST(SessionTraces, TellWhatAllRanksOfOneReloadDid) {
  SessionTraces traces("publisher", {});
  const TraceTime now = TraceTime::clock::now();
  const auto first = traces.Begin(HelloOf(3, 0), now);
  const auto second = traces.Begin(HelloOf(3, 1), now);
  traces.Begin(HelloOf(4, 0), now)->Add("digests", now, now, "of another reload");
  first->Add("digests", now, now + std::chrono::microseconds(5), "12 chunks from 0 on");
  first->End();
  const ProcessTrace trace = TraceIn(traces.Answer({.session = "engine-0/3"}));
  EXPECT_THAT(LanesOf(trace), ElementsAre("rank 0: session", "rank 0: digests", "rank 1: session"));
  EXPECT_EQ(trace.lanes[1].spans().front().first, "12 chunks from 0 on");
  EXPECT_EQ(trace.lanes[1].busy_ns(), 5'000);
}

TEST(SessionTraces, AnswerWithTheirClockAlsoWhereTheyKnowNothing) {
  SessionTraces traces("publisher", {});
  const auto before = static_cast<std::uint64_t>(TraceNow());
  const wire::SessionTrace answer = traces.Answer({.session = "nobody/1"});
  EXPECT_THAT(answer.trace, IsEmpty());
  EXPECT_GE(answer.heard_ns, before);
  EXPECT_GE(answer.answered_ns, answer.heard_ns);
  EXPECT_LE(answer.answered_ns, static_cast<std::uint64_t>(TraceNow()));
}

TEST(SessionTraces, GoToTheCollectorAsPartsOfTheTraceThatTheEngineNames) {
  Collector collector;
  SessionTraces traces("publisher", collector.Taker());
  traces.Begin(HelloOf(3, 0), TraceTime::clock::now())->End();
  const wire::SessionTrace ask{.session = "engine-0/3",
                               .traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"};
  traces.Answer(ask);
  traces.Answer(ask);  // once alone
  ASSERT_EQ(collector.traces.size(), 1U);
  EXPECT_EQ(collector.contexts[0].TraceHex(), "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(collector.traces[0].parent, 0xb7ad6b7169203331U);
}

TEST(SessionTraces, AreNotSentWhereWhoeverAsksSendsThem) {
  Collector collector;
  {
    SessionTraces traces("publisher", collector.Taker());
    traces.Begin(HelloOf(3, 0), TraceTime::clock::now())->End();
    traces.Answer({.session = "engine-0/3", .sent = true});
  }
  EXPECT_THAT(collector.traces, IsEmpty());
}

TEST(SessionTraces, ThatNobodyAskedForGoToTheTraceThatTheirSessionHas) {
  Collector collector;
  {
    SessionTraces traces("publisher", collector.Taker());
    traces.Begin(HelloOf(3, 0), TraceTime::clock::now())->End();
    traces.Sweep();  // somebody may still ask
    EXPECT_THAT(collector.traces, IsEmpty());
  }
  EXPECT_THAT(collector.contexts, ElementsAre(TraceOfSession("engine-0/3")));
}

TEST(SessionTraces, AreOfTheLatestSyncsAlone) {
  SessionTraces traces("publisher", {});
  for (std::uint64_t attempt = 0; attempt < 70; ++attempt) traces.Begin(HelloOf(attempt, 0), TraceTime::clock::now());
  EXPECT_THAT(traces.Answer({.session = "engine-0/0"}).trace, IsEmpty());
  EXPECT_FALSE(traces.Answer({.session = "engine-0/69"}).trace.empty());
}

}  // namespace
}  // namespace layercast
