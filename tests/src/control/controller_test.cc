#include "layercast/controller.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <optional>

#include "src/control/engine_outcome.h"
#include "src/control/rpc.h"
#include "tests/support/error_of.h"

namespace layercast {
namespace {

using ::testing::HasSubstr;

const Json kVersion = {{"lineage", "run"}, {"step", 3}, {"digest", "00112233445566778899aabbccddeeff"}};
const Version kWanted{.lineage = "run", .step = 3, .digest = *Digest::FromHex("00112233445566778899aabbccddeeff")};

// An engine that answers every method with what the test says, and keeps what it was asked.
class FakeEngine {
 public:
  explicit FakeEngine(Json answer) : answer_(std::move(answer)) {}

  std::string endpoint() const { return server_.endpoint(); }
  Json Asked() { return asked_.get_future().get(); }

 private:
  const Json answer_;
  std::promise<Json> asked_;
  RpcServer server_{"tcp://127.0.0.1:0", Keys(), [this](const std::string& method, const Json& params, RpcReply reply) {
                      asked_.set_value({{"method", method}, {"params", params}});
                      if (answer_.contains("code")) throw Error(ErrorCode::kUnsupported, "not today");
                      reply.Result(answer_);
                    }};
};

Json Done() { return {{"ok", true}, {"version", kVersion}, {"report", {{"bytes", 12}}}, {"error", nullptr}}; }

TEST(Controller, AsksForTheVersionAndTheChannel) {
  FakeEngine engine(Done());
  Controller controller({engine.endpoint()});
  const auto outcomes = controller.ReloadWeights(
      {.publisher = "tcp://127.0.0.1:9", .version = kWanted, .channel = "zmq", .pause_mode = "keep"});
  ASSERT_EQ(outcomes.size(), 1U);
  EXPECT_TRUE(outcomes[0].ok);
  EXPECT_EQ(outcomes[0].version, kWanted);
  EXPECT_EQ(Json::parse(outcomes[0].report)["bytes"], 12);
  const Json asked = engine.Asked();
  EXPECT_EQ(asked["method"], "reload_weights");
  EXPECT_EQ(asked["params"], (Json{{"timeout_ms", 298000},  // of 300 s, the rest is for its answer
                                   {"publisher", "tcp://127.0.0.1:9"},
                                   {"lineage", "run"},
                                   {"step", 3},
                                   {"digest", kWanted.digest.ToHex()},
                                   {"channel", "zmq"},
                                   {"pause_mode", "keep"}}));
}

TEST(Controller, GivesAnOutcomeForEachEngineWhateverTheOthersSay) {
  FakeEngine good(Done());
  FakeEngine failing(Json{{"ok", false},
                          {"version", nullptr},
                          {"report", nullptr},
                          {"error", {{"code", "corrupt"}, {"message", "rank 1: chunk 17"}}}});
  FakeEngine refusing(Json{{"code", "unsupported"}});
  FakeEngine babbling(Json{{"yes", true}});
  Controller controller({good.endpoint(), failing.endpoint(), refusing.endpoint(), babbling.endpoint()});
  const auto outcomes = controller.ReloadWeights({.weights_path = "/folder"});
  ASSERT_EQ(outcomes.size(), 4U);
  EXPECT_TRUE(outcomes[0].ok);
  EXPECT_FALSE(outcomes[1].ok);
  EXPECT_EQ(outcomes[1].error->code(), ErrorCode::kCorrupt);
  EXPECT_THAT(outcomes[1].error->what(), HasSubstr("rank 1: chunk 17"));
  EXPECT_EQ(outcomes[1].endpoint, failing.endpoint());
  EXPECT_EQ(outcomes[2].error->code(), ErrorCode::kUnsupported);
  EXPECT_EQ(outcomes[3].error->code(), ErrorCode::kCorrupt);
  for (std::size_t i = 1; i < 4; ++i) EXPECT_FALSE(outcomes[i].ok);
}

// If the deadline were put off by 2 s for an answer, the engine would be lost first: it is silent for 5 s.
TEST(Controller, AnEngineThatCannotBeReachedIsGivenUpAtTheDeadline) {
  const auto reload = [](bool all_or_none) {
    return Controller({"tcp://127.0.0.1:9"})
        .ReloadWeights(
            {.publisher = "tcp://127.0.0.1:9", .all_or_none = all_or_none, .timeout = std::chrono::milliseconds(3100)})
        .at(0);
  };
  auto together = std::async(std::launch::async, reload, true);
  for (const EngineOutcome& outcome : {reload(false), together.get()}) {
    EXPECT_EQ(outcome.error->code(), ErrorCode::kDeadlineExceeded) << outcome.error->what();
  }
}

TEST(Controller, PausesAndResumesEveryEngine) {
  FakeEngine paused(Json::object());
  FakeEngine resumed(Json::object());
  const auto outcomes = Controller({paused.endpoint()}).Pause({.mode = "keep", .lease = std::chrono::seconds(7)});
  ASSERT_EQ(outcomes.size(), 1U);
  EXPECT_TRUE(outcomes[0].ok);
  EXPECT_EQ(paused.Asked(), (Json{{"method", "pause"}, {"params", {{"lease_ms", 7000}, {"mode", "keep"}}}}));
  EXPECT_TRUE(Controller({resumed.endpoint()}).Resume().at(0).ok);
  EXPECT_EQ(resumed.Asked(), (Json{{"method", "resume"}, {"params", Json::object()}}));
}

TEST(Controller, SaysWhichEngineRefusedToPause) {
  FakeEngine good(Json::object());
  FakeEngine refusing(Json{{"code", "unsupported"}});
  const auto outcomes = Controller({good.endpoint(), refusing.endpoint()}).Pause();
  ASSERT_EQ(outcomes.size(), 2U);
  EXPECT_TRUE(outcomes[0].ok);
  EXPECT_FALSE(outcomes[1].ok);
  EXPECT_EQ(outcomes[1].endpoint, refusing.endpoint());
  EXPECT_EQ(outcomes[1].error->code(), ErrorCode::kUnsupported);
}

TEST(Controller, NoticesAnEngineThatServesOtherBytesThanAskedFor) {
  FakeEngine engine(Done());
  Controller controller({engine.endpoint()});
  Version other = kWanted;
  other.digest.low ^= 1;
  const auto outcomes = controller.ReloadWeights({.publisher = "tcp://127.0.0.1:9", .version = other});
  EXPECT_FALSE(outcomes[0].ok);
  EXPECT_EQ(outcomes[0].error->code(), ErrorCode::kCorrupt);
}

TEST(Controller, ReadsBatchesOfSequences) {
  const Json answer = {{"tokens", {5, 9}},
                       {"logprobs", {-0.5, -1.25}},
                       {"finish", "length"},
                       {"spans", {{{"start", 0}, {"end", 2}, {"version", kVersion}}}}};
  FakeEngine engine(Json{{"answers", {answer, answer}}});
  Controller controller({engine.endpoint()});
  const auto sequences =
      controller.Generate({.prompts = {{1, 2}, {3}}, .max_new = 2, .temperature = 1, .seed = 7, .ignore_eos = true});
  ASSERT_EQ(sequences.size(), 2U);
  EXPECT_THAT(sequences[1].tokens, ::testing::ElementsAre(5, 9));
  EXPECT_THAT(sequences[1].logprobs, ::testing::ElementsAre(-0.5, -1.25));
  ASSERT_EQ(sequences[1].spans.size(), 1U);
  EXPECT_EQ(sequences[1].spans[0].version, kWanted);
  const Json params = engine.Asked()["params"];
  EXPECT_EQ(params["prompts"], (Json{{1, 2}, {3}}));
  EXPECT_EQ(params["seed"], 7);
  EXPECT_EQ(params["logprobs"], true);
  EXPECT_EQ(params["ignore_eos"], true);
}

// An engine that never answers, and gives the call up once it is asked.
TEST(Controller, ACallIsGivenUpFromAnyThread) {
  std::optional<Controller> controller;  // ends after the server, whose thread is in it
  std::promise<void> made;
  const auto made_one = made.get_future().share();
  std::vector<RpcReply> unanswered;
  RpcServer server("tcp://127.0.0.1:0", Keys(), [&](const std::string&, const Json&, RpcReply reply) {
    unanswered.push_back(std::move(reply));
    made_one.get();
    controller->Cancel();
  });
  controller.emplace(std::vector{server.endpoint()});
  made.set_value();
  const auto code = [](const std::vector<EngineOutcome>& outcomes) { return outcomes.at(0).error->code(); };
  EXPECT_EQ(code(controller->ReloadWeights({.publisher = "tcp://127.0.0.1:9"})), ErrorCode::kCancelled);
  EXPECT_EQ(code(controller->Pause()), ErrorCode::kCancelled);
  EXPECT_NE(layercast::testing::ErrorOf([&] { controller->Status(); }, ErrorCode::kCancelled), "no error");
}

TEST(Controller, NeedsAnEngineAndKnowsHowManyThereAre) {
  EXPECT_THROW(Controller({}), Error);
  EXPECT_THROW(Controller({"tcp://127.0.0.1:7800", "tcp://127.0.0.1:7801", "tcp://127.0.0.1:7800"}), Error);
  Controller controller({"tcp://127.0.0.1:9"});
  EXPECT_THROW(controller.Generate({.prompts = {{1}}}, 1), Error);
}

TEST(EngineOutcome, AnEngineIsNamedOnceWhateverWasWrongWithIt) {
  EXPECT_EQ(NamingEngine("tcp://a:1", "the layout differs"), "engine tcp://a:1: the layout differs");
  EXPECT_EQ(NamingEngine("tcp://a:1", "engine tcp://a:1 was silent"), "engine tcp://a:1 was silent");
}

}  // namespace
}  // namespace layercast
