// An engine's service as whoever starts it sees it. The ranks are processes (scripted_rank.cc).
#include "engine_side/server/engine_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "layercast/error.h"
#include "tests/engine_side/model/config/minimal_config.h"
#include "tests/support/child_process.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_folder.h"

namespace layercast {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::chrono::milliseconds kInTime{20'000};

class EngineServiceTest : public ::testing::Test {
 protected:
  EngineServiceTest() { model_.Write("config.json", testing::MinimalConfig().dump()); }

  EngineServiceOptions Options() const {
    EngineServiceOptions options;
    options.ranks.program = test::FolderOfThisProgram() + "/scripted_rank";
    options.ranks.model = model_.path();
    options.first_load = {{"load_format", "dummy"}, {"seed", 1}};
    options.allow_paths = {model_.path()};
    return options;
  }

  const TempFolder model_;
};

TEST_F(EngineServiceTest, APauseModeThatIsNoneIsRefused) {
  EngineServiceOptions options = Options();
  options.pause_mode = "later";
  EXPECT_THAT([&] { EngineService{options}; }, ThrowsMessage<Error>(HasSubstr("'later'")));
}

// A scripted rank counts on from the prompt.
TEST_F(EngineServiceTest, ASequenceEndsAtTheModelsEndOfSequenceUnlessItIsToIgnoreIt) {
  model_.Write("config.json", testing::ConfigWith({{"eos_token_id", {99, 12}}}).dump());
  model_.Write("generation_config.json", R"({"eos_token_id": [32, 99]})");
  EngineService service(Options());
  service.LoadModel();
  RpcClient controller("controller", service.endpoint());
  const auto generate = [&](const Json& more, int prompt = 10) {
    Json params = {{"tokens", {prompt}}, {"max_new", 5}};
    params.update(more);
    return controller.Call("generate", params, Deadline::After(std::chrono::seconds(20)));
  };
  const Json ended = generate(Json::object());
  EXPECT_EQ(ended["tokens"], (Json{11, 12}));
  EXPECT_EQ(ended["finish"], "stop");
  EXPECT_EQ(generate(Json::object(), 30)["tokens"], (Json{31, 32}));
  for (const int prompt : {10, 30}) {  // the end as the last token that was asked for
    EXPECT_EQ(generate({{"max_new", 2}}, prompt)["finish"], "stop");
    EXPECT_EQ(generate({{"max_new", 2}, {"ignore_eos", true}}, prompt)["finish"], "length");
  }
  const Json ignored = generate({{"ignore_eos", true}});
  EXPECT_EQ(ignored["tokens"], (Json{11, 12, 13, 14, 15}));
  EXPECT_EQ(ignored["finish"], "length");
  EXPECT_EQ(generate({{"ignore_eos", true}}, 30)["finish"], "length");
  EXPECT_EQ(generate({{"ignore_eos", true}, {"stop_tokens", {13}}})["tokens"], (Json{11, 12, 13}));
}

TEST_F(EngineServiceTest, TheEndOfSequenceAtTheEnginesLastPositionIsAStop) {
  model_.Write("config.json", testing::ConfigWith({{"eos_token_id", 12}}).dump());
  EngineServiceOptions options = Options();
  options.ranks.max_model_len = 3;
  EngineService service(options);
  service.LoadModel();
  RpcClient controller("controller", service.endpoint());
  for (const auto& [prompt, finish] : {std::pair(10, "stop"), std::pair(50, "length")}) {
    const Json params = {{"tokens", {prompt}}, {"max_new", 2}};
    EXPECT_EQ(controller.Call("generate", params, Deadline::After(kInTime))["finish"], finish);
  }
}

// The kernel ends them with the thread that has started them.
TEST_F(EngineServiceTest, RanksThatWereStartedAnewInTheFirstLoadOutliveItsCaller) {
  EngineServiceOptions options = Options();
  options.first_load["dies_in"] = "verify";
  EngineService service(options);
  const Json started = service.Ready()["pids"];
  std::thread([&] { service.LoadModel(); }).join();
  const Json anew = service.Ready()["pids"];
  EXPECT_NE(started, anew);
  RpcClient controller("controller", service.endpoint());
  for (int i = 0; i < 20; ++i) {
    EXPECT_NO_THROW(controller.Call("digests", Json::object(), Deadline::After(std::chrono::seconds(20)))) << i;
  }
  EXPECT_EQ(service.Ready()["pids"], anew);
}

TEST_F(EngineServiceTest, ACallFailsWithTheErrorOfItsSequence) {
  model_.Write("config.json", testing::ConfigWith({{"vocab_size", 1000}}).dump());
  EngineService service(Options());
  service.LoadModel();
  RpcClient controller("controller", service.endpoint());
  const Json pids = service.Ready()["pids"];
  constexpr int kBroken = 777;  // after which a scripted rank picks none
  for (const Json& broken : {Json{{"tokens", {kBroken}}}, Json{{"prompts", {{10}, {kBroken}, {20}}}}}) {
    const auto generate = [&] { controller.Call("generate", broken, Deadline::After(kInTime)); };
    EXPECT_THAT(testing::ErrorOf(generate, ErrorCode::kCorrupt), HasSubstr("a broken logit"));
  }
  const Json asked = {{"tokens", {10}}, {"max_new", 2}};
  EXPECT_EQ(controller.Call("generate", asked, Deadline::After(kInTime))["tokens"], (Json{11, 12}));
  EXPECT_EQ(service.Ready()["pids"], pids);
}

class LostRankTest : public EngineServiceTest {
 protected:
  void Start(bool on_device = false) {
    EngineServiceOptions options = Options();
    options.ranks.on_device = on_device;
    service_.emplace(options);
    service_->LoadModel();
    controller_.emplace("controller", service_->endpoint());
  }
  Json Pids() const { return service_->Ready()["pids"]; }
  void KillTheRank() const { ::kill(Pids()[0].get<pid_t>(), SIGKILL); }
  Json Call(const std::string& method, const Json& params = Json::object()) {
    return controller_->Call(method, params, Deadline::After(kInTime));
  }
  // The engine notices a moment later that a rank has died; calls that come before that fail, as those under way do.
  // Returns the answer to the first call that finds another rank, or else the error of the last one.
  Json CallUntilThereIsAnother(const std::string& method, const Json& params = Json::object()) {
    const Json lost = Pids();
    Json answer;
    for (const Deadline deadline = Deadline::After(kInTime); Pids() == lost && !deadline.Passed();) {
      try {
        answer = Call(method, params);
      } catch (const Error& error) {
        answer = ErrorToJson(error);
      }
    }
    EXPECT_NE(Pids(), lost) << method << ": " << answer;
    return answer;
  }

  std::optional<EngineService> service_;
  std::optional<RpcClient> controller_;
};

TEST_F(LostRankTest, EveryCallThatNeedsTheRanksStartsThemAnew) {
  Start();
  KillTheRank();
  EXPECT_TRUE(CallUntilThereIsAnother("digests").contains("ranks"));
  KillTheRank();
  const Json exported = CallUntilThereIsAnother("export", {{"directory", (model_ / "export").string()}});
  EXPECT_EQ(exported["version"]["step"], 1) << exported;
  KillTheRank();
  EXPECT_EQ(CallUntilThereIsAnother("verify", {{"weights_path", model_.path().string()}})["equal"], true);
  KillTheRank();
  EXPECT_EQ(CallUntilThereIsAnother("lend_weights")["ranks"][0]["endpoint"], "tcp://127.0.0.1:1");
}

TEST_F(LostRankTest, WhereTheWeightsGoWithItEveryCallSaysThatTheyAreGone) {
  for (const char* method : {"export", "verify", "lend_weights"}) {
    Start(/*on_device=*/true);
    KillTheRank();
    const Json refused = CallUntilThereIsAnother(
        method, {{"directory", (model_ / "export").string()}, {"weights_path", model_.path().string()}});
    EXPECT_EQ(refused["code"], "failed_precondition") << method;
    EXPECT_THAT(refused["message"].get<std::string>(), HasSubstr("this engine is torn")) << method;
    EXPECT_EQ(Call("status")["torn"]["to"], nullptr) << method;
    EXPECT_EQ(Call("status")["version"], nullptr) << method;
  }
}

TEST_F(EngineServiceTest, AReloadFromTheEngineItselfIsRefusedAndSaysWhatIsServed) {
  EngineService service(Options());
  service.LoadModel();
  RpcClient controller("controller", service.endpoint());
  for (const char* method : {"reload_weights", "stage_weights"}) {
    const Json outcome = controller.Call(method, {{"engine", service.endpoint()}}, Deadline::After(kInTime));
    EXPECT_EQ(outcome["ok"], false);
    EXPECT_EQ(outcome["error"]["code"], "invalid_argument");
    EXPECT_THAT(outcome["error"]["message"].get<std::string>(), HasSubstr("expected another engine, got this one"));
    EXPECT_EQ(outcome["version"]["step"], 1);
    EXPECT_EQ(outcome["previous"]["step"], 1);
  }
}

TEST_F(EngineServiceTest, AReloadInThreeCallsIsWhoseItsTicketIs) {
  EngineService service(Options());
  service.LoadModel();
  RpcClient controller("controller", service.endpoint());
  const auto call = [&](const std::string& method, const Json& params) {
    return controller.Call(method, params, Deadline::After(kInTime));
  };
  const Json staged = call("stage_weights", {{"load_format", "dummy"}, {"seed", 2}, {"lease_ms", 60'000}});
  EXPECT_EQ(staged["ok"], true) << staged;
  const auto ticket = staged["ticket"].get<std::uint64_t>();
  for (const char* method : {"hold_weights", "prepare_weights", "commit_weights", "abort_weights"}) {
    EXPECT_THAT(testing::ErrorOf([&] { call(method, Json::object()); }, ErrorCode::kInvalidArgument),
                HasSubstr("ticket"));
    EXPECT_THAT(testing::ErrorOf([&] { call(method, {{"ticket", ticket + 1}}); }, ErrorCode::kFailedPrecondition),
                HasSubstr("expected the ticket of the version that is held"));
  }
  EXPECT_EQ(call("hold_weights", {{"ticket", ticket}}), Json::object());
  EXPECT_EQ(call("prepare_weights", {{"ticket", ticket}})["ticket"], ticket);
  const Json committed = call("commit_weights", {{"ticket", ticket}});
  EXPECT_EQ(committed["version"], staged["staged"]) << committed;
  EXPECT_NE(committed["version"], staged["version"]);
}

// What controllers of other engines call: a bracket around updates, each of which is a reload.
TEST_F(EngineServiceTest, UpdatesInABracketAreReloadsAndNothingElseIsTaken) {
  EngineService service(Options());
  service.LoadModel();
  RpcClient controller("controller", service.endpoint());
  const auto call = [&](const std::string& method, const Json& params = Json::object()) {
    return controller.Call(method, params, Deadline::After(std::chrono::seconds(20)));
  };
  const Json second = {{"load_format", "dummy"}, {"seed", 2}};
  EXPECT_EQ(call("init_weight_transfer_engine")["pids"], service.Ready()["pids"]);
  EXPECT_THAT([&] { call("update_weights", second); },
              ThrowsMessage<Error>(HasSubstr("start_weight_update must be called before update_weights.")));
  EXPECT_THAT([&] { call("finish_weight_update"); },
              ThrowsMessage<Error>(HasSubstr("called without a matching start_weight_update.")));
  call("start_weight_update");
  EXPECT_THAT([&] { call("start_weight_update"); }, ThrowsMessage<Error>(HasSubstr("is already active")));
  EXPECT_EQ(call("update_weights", second)["version"]["step"], 2);
  EXPECT_EQ(call("finish_weight_update")["version"]["step"], 2);
  EXPECT_EQ(call("status")["version"]["step"], 2);
}

}  // namespace
}  // namespace layercast
