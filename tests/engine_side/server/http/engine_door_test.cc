// An engine's HTTP door, over ranks that count on from the prompt and step when a test lets them (scripted_rank.cc).
#include "engine_side/server/http/engine_door.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <fstream>
#include <future>
#include <optional>
#include <string>

#include "engine_side/server/engine_service.h"
#include "layercast/error.h"
#include "tests/engine_side/model/config/minimal_config.h"
#include "tests/engine_side/server/step_gate.h"
#include "tests/support/child_process.h"
#include "tests/support/http_client.h"

namespace layercast::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class EngineDoorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ofstream(gate_.folder() + "/config.json")
        << ConfigWith({{"max_position_embeddings", 2'000}, {"vocab_size", 2'000}});
    EngineServiceOptions options;
    options.ranks.program = test::FolderOfThisProgram() + "/scripted_rank";
    options.ranks.model = gate_.folder();
    options.ranks.max_num_seqs = 512;
    options.first_load = {{"load_format", "dummy"}, {"seed", 1}};
    options.door = {.bind = "127.0.0.1:0", .dashboard = true};
    try {
      service_.emplace(options);
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::kUnsupported);
      GTEST_SKIP() << "cpp-httplib is not in this build";
    }
    address_ = service_->Ready().at("http");
  }

  std::string Get(const std::string& path) const { return HttpClient(address_).Get(path).HearAll(); }
  // The answer to this, whose steps are let go on.
  std::string Complete(const Json& body) const {
    gate_.Allow(20);
    return HttpClient(address_).Post("/v1/completions", body.dump()).HearAll();
  }
  static Json BodyOf(const std::string& answer) { return Json::parse(answer.substr(answer.find("\r\n\r\n") + 4)); }
  Json Call(const std::string& method, const Json& params) const {
    return RpcClient("controller", service_->endpoint())
        .Call(method, params, Deadline::After(std::chrono::seconds(20)));
  }

  // Of tokens, none of which is one that a scripted rank does not bear.
  static constexpr int kLong = 1'000;
  static Json Long(bool stream) { return {{"prompt", {800}}, {"max_tokens", kLong}, {"stream", stream}}; }
  std::future<Json> Reload(int step, const std::string& pause_mode) const {
    return std::async(std::launch::async, [=, this] {
      return Call("reload_weights", {{"load_format", "dummy"}, {"seed", step}, {"pause_mode", pause_mode}});
    });
  }
  // Lets one step after another go on until the reload has ended. Returns how many; at most kLong.
  int StepUntil(const std::future<Json>& reload) const {
    int steps = 0;
    for (; steps < kLong && reload.wait_for(std::chrono::milliseconds(10)) != std::future_status::ready; ++steps)
      gate_.Allow();
    return steps;
  }

  const StepGate gate_;
  std::optional<EngineService> service_;
  std::string address_;
};

TEST_F(EngineDoorTest, BeforeTheFirstVersionItSaysSo) {
  EXPECT_THAT(Get("/health"), AllOf(StartsWith("HTTP/1.1 503 "), HasSubstr(R"({"status":"loading"})")));
  EXPECT_THAT(Complete({{"prompt", {1}}}),
              AllOf(StartsWith("HTTP/1.1 503 "), HasSubstr("it is loading"), HasSubstr("Retry-After")));
  service_->LoadModel();
  EXPECT_THAT(Get("/health"), AllOf(StartsWith("HTTP/1.1 200 "), HasSubstr(R"({"status":"serving"})")));
}

TEST_F(EngineDoorTest, AnswersWhatGenerateAnswers) {
  service_->LoadModel();
  const Json body = BodyOf(Complete(
      {{"prompt", {{10}, {20, 21}}}, {"n", 2}, {"max_tokens", 3}, {"seed", 5}, {"logprobs", 0}, {"stop", {12}}}));
  gate_.Allow(20);
  const Json generated = Call("generate", {{"prompts", {{10}, {10}, {20, 21}, {20, 21}}},
                                           {"max_new", 3},
                                           {"seed", 5},
                                           {"temperature", 1},
                                           {"logprobs", true},
                                           {"stop_tokens", {12}}});
  ASSERT_EQ(body.at("choices").size(), 4);
  for (std::size_t i = 0; i < 4; ++i) {
    const Json& choice = body["choices"][i];
    const Json& answer = generated["answers"][i];
    EXPECT_EQ(choice["index"], i);
    EXPECT_EQ(choice["token_ids"], answer["tokens"]);
    EXPECT_EQ(choice["logprobs"]["token_logprobs"], answer["logprobs"]);
    EXPECT_EQ(choice["finish_reason"], answer["finish"]);
    EXPECT_EQ(choice["spans"], answer["spans"]);
    EXPECT_EQ(choice["version"], answer["spans"].back()["version"]);
    EXPECT_EQ(choice["seed"], 5 + i);
  }
  EXPECT_EQ(body["choices"][0]["token_ids"], (Json{11, 12})) << "the stop token is its last";
  EXPECT_EQ(body["choices"][0]["logprobs"]["tokens"], (Json{"token_id:11", "token_id:12"}));
  EXPECT_EQ(body["usage"], (Json{{"prompt_tokens", 3}, {"completion_tokens", 10}, {"total_tokens", 13}}));
  EXPECT_EQ(body["object"], "text_completion");
}

TEST_F(EngineDoorTest, StreamsEachTokenWhenItIsThere) {
  service_->LoadModel();
  HttpClient client(address_);
  client.Post(
      "/v1/completions",
      Json({{"prompt", {10}}, {"max_tokens", 3}, {"stream", true}, {"stream_options", {{"include_usage", true}}}})
          .dump());
  gate_.AwaitStep();
  gate_.Allow();
  EXPECT_THAT(client.HearUntil("\"token_ids\":[11]"), AllOf(HasSubstr("text/event-stream"), Not(HasSubstr("[12]"))));
  gate_.AwaitStep();
  gate_.Allow(5);
  const std::string all = client.HearAll();
  EXPECT_THAT(all, AllOf(HasSubstr("\"token_ids\":[12"), HasSubstr("\"finish_reason\":\"length\""),
                         HasSubstr("\"completion_tokens\":3"), HasSubstr("data: [DONE]\n\n")));
}

TEST_F(EngineDoorTest, AClientThatGoesEndsItsSequences) {
  service_->LoadModel();
  for (const bool stream : {false, true}) {
    HttpClient client(address_);
    client.Post("/v1/completions", Long(stream).dump());
    gate_.AwaitStep();
    gate_.Allow();
    client.Leave();
    // Waits for sequences under way, of which this one would go on for long.
    std::future<Json> reload = Reload(2, "wait");
    EXPECT_LT(StepUntil(reload), kLong / 2);
    gate_.Allow(kLong);
    EXPECT_EQ(reload.get().at("ok"), true);
    gate_.Drain();
  }
}

TEST_F(EngineDoorTest, AVersionThatChangesMidWayIsToldOfEachToken) {
  service_->LoadModel();
  for (const bool stream : {false, true}) {
    const int step = stream ? 3 : 2;
    HttpClient client(address_);
    client.Post("/v1/completions", Long(stream).dump());
    gate_.AwaitStep();  // of the first token, which is of the version before
    std::future<Json> reload = Reload(step, "keep");
    EXPECT_LT(StepUntil(reload), kLong);
    EXPECT_EQ(reload.get().at("ok"), true);
    gate_.Allow(kLong);
    const std::string answer = client.HearAll();
    gate_.Drain();
    ASSERT_THAT(answer, StartsWith("HTTP/1.1 200 "));
    if (stream) {
      const std::size_t before = answer.find("\"step\":" + std::to_string(step - 1));
      const std::size_t after = answer.find("\"step\":" + std::to_string(step));
      EXPECT_LT(before, after);
      EXPECT_LT(after, answer.find("[DONE]"));
      EXPECT_EQ(answer.find("\"step\":" + std::to_string(step - 1), after), std::string::npos) << "none goes back";
      continue;
    }
    const Json choice = BodyOf(answer)["choices"][0];
    ASSERT_EQ(choice["token_ids"].size(), static_cast<std::size_t>(kLong));
    ASSERT_EQ(choice["spans"].size(), 2) << choice["spans"];
    EXPECT_EQ(choice["spans"][0]["version"]["step"], step - 1);
    EXPECT_EQ(choice["version"]["step"], step);
    EXPECT_EQ(choice["version"], choice["spans"][1]["version"]);
    EXPECT_EQ(choice["weight_version"], choice["version"]["lineage"].get<std::string>() + "@" + std::to_string(step));
  }
}

TEST_F(EngineDoorTest, RefusesInOpenAisFormWithTheRightStatus) {
  service_->LoadModel();
  const auto refused = [&](const Json& fields) {
    Json body = {{"prompt", {1}}};
    body.update(fields);
    return HttpClient(address_).Post("/v1/completions", body.dump()).HearAll();
  };
  EXPECT_THAT(refused({{"prompt", "text"}}),
              AllOf(StartsWith("HTTP/1.1 400 "), HasSubstr(R"("type":"invalid_request_error")"),
                    HasSubstr(R"("code":"unsupported")"), HasSubstr("no tokenizer")));
  EXPECT_THAT(refused({{"prompt", {5'000}}}),
              AllOf(StartsWith("HTTP/1.1 400 "), HasSubstr("token 5000, expected 0 to 1999")));
  EXPECT_THAT(refused({{"max_tokens", 5'000}}), AllOf(StartsWith("HTTP/1.1 400 "), HasSubstr("positions")));
  EXPECT_THAT(refused({{"model", "gpt"}}),
              AllOf(StartsWith("HTTP/1.1 404 "), HasSubstr(R"("type":"not_found_error")")));
  EXPECT_THAT(refused({{"least_version", {{"lineage", "other"}, {"step", 9}}}}),
              AllOf(StartsWith("HTTP/1.1 409 "), HasSubstr("other@9")));
  EXPECT_THAT(refused({{"least_version", 3}}), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(Get("/v1/chat/completions"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(Get("/v1/completions"), StartsWith("HTTP/1.1 405 "));
}

TEST_F(EngineDoorTest, IsFullAtSomePointAndStillSaysHowItIs) {
  service_->LoadModel();
  const std::string body = Json({{"prompt", {10}}, {"max_tokens", 2}}).dump();
  std::deque<HttpClient> clients;
  for (std::size_t i = 0; i < EngineDoor::kMostCompletions; ++i)
    clients.emplace_back(address_).Post("/v1/completions", body);
  const auto under_way = [&] {
    const Json sequences = BodyOf(Get("/dashboard/status"))["sequences"];
    return sequences["running"].get<std::size_t>() + sequences["waiting"].get<std::size_t>();
  };
  while (under_way() < clients.size()) {
  }
  EXPECT_THAT(HttpClient(address_).Post("/v1/completions", body).HearAll(),
              AllOf(StartsWith("HTTP/1.1 429 "), HasSubstr("rate_limit_error"), HasSubstr("Retry-After: 1")));
  EXPECT_THAT(Get("/health"), StartsWith("HTTP/1.1 200 "));
  gate_.Allow(20);
  for (HttpClient& client : clients) EXPECT_THAT(client.HearAll(), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(Complete({{"prompt", {10}}}), StartsWith("HTTP/1.1 200 ")) << "there is room again";
}

TEST_F(EngineDoorTest, ItsEndIsToldToWhoeverWaits) {
  service_->LoadModel();
  HttpClient client(address_);
  client.Post("/v1/completions", Json({{"prompt", {10}}}).dump());
  gate_.AwaitStep();
  service_.reset();
  // Whichever comes first: the end of the server, or that of the sequences.
  EXPECT_THAT(client.HearAll(), AnyOf(StartsWith("HTTP/1.1 503 "), HasSubstr(R"("finish_reason":"abort")")));
}

TEST_F(EngineDoorTest, TheDashboardTellsOfSyncsAndErrors) {
  service_->LoadModel();
  Call("reload_weights", {{"load_format", "dummy"}, {"seed", 2}, {"fails_in", "prepare"}});
  Call("reload_weights", {{"load_format", "dummy"}, {"seed", 3}});
  const Json status = BodyOf(Get("/dashboard/status"));
  EXPECT_EQ(status["engines"][0]["endpoint"], service_->endpoint());
  EXPECT_EQ(status["engines"][0]["status"]["version"]["step"], 3);
  EXPECT_EQ(status["publishers"], Json::array());
  ASSERT_EQ(status["syncs"].size(), 3) << status["syncs"];
  EXPECT_EQ(status["syncs"][1]["ok"], false);
  EXPECT_TRUE(status["syncs"][1]["error"].is_object());
  EXPECT_EQ(status["syncs"][2]["version"]["step"], 3);
  EXPECT_EQ(status["memory"].size(), 2);
  EXPECT_GT(status["memory"][1]["resident_bytes"], 0);
}

}  // namespace
}  // namespace layercast::testing
