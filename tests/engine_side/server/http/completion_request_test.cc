// What OpenAI's API asks for, as `generate` has it; and what is refused, by its name.
#include "engine_side/server/http/completion_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "layercast/error.h"
#include "tests/support/error_of.h"

namespace layercast::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const ServedModels kModels{.base = "llama", .adapters = {"policy"}};

CompletionRequest Ask(const Json& body) { return CompletionRequestFrom(body.dump(), kModels); }

Json With(const Json& fields) {
  Json body = {{"prompt", {1, 2}}};
  body.update(fields);
  return body;
}

TEST(CompletionRequest, HasOpenAisDefaults) {
  const CompletionRequest asked = Ask({{"prompt", {3, 11, 4}}, {"seed", 7}});
  EXPECT_EQ(asked.generate, (Json{{"max_new", 16},
                                  {"temperature", 1.0},
                                  {"top_p", 1.0},
                                  {"top_k", 0},
                                  {"seed", 7},
                                  {"stop_tokens", Json::array()},
                                  {"ignore_eos", false},
                                  {"logprobs", false},
                                  {"prompts", {{3, 11, 4}}}}));
  EXPECT_EQ(asked.model, "llama");
  EXPECT_EQ(asked.prompt_tokens, 3);
  EXPECT_FALSE(asked.stream);
}

TEST(CompletionRequest, CarriesWhatGenerateKnows) {
  const CompletionRequest asked = Ask({{"model", "policy"},
                                       {"prompt", {{1, 2}, {3}}},
                                       {"n", 2},
                                       {"max_tokens", 5},
                                       {"temperature", 0.5},
                                       {"top_p", 0.9},
                                       {"top_k", -1},
                                       {"seed", 40},
                                       {"stop", {9}},
                                       {"stop_token_ids", {8}},
                                       {"ignore_eos", true},
                                       {"logprobs", 0},
                                       {"stream", true},
                                       {"adapter_timeout_ms", 5},
                                       {"least_version", {{"lineage", "run"}, {"step", 3}}},
                                       {"max_staleness", {{"steps", 1}}},
                                       {"stream_options", {{"include_usage", true}}},
                                       {"user", "me"}});
  EXPECT_EQ(asked.generate, (Json{{"max_new", 5},
                                  {"temperature", 0.5},
                                  {"top_p", 0.9},
                                  {"top_k", 0},
                                  {"seed", 40},
                                  {"stop_tokens", {9, 8}},
                                  {"ignore_eos", true},
                                  {"logprobs", true},
                                  {"least_version", {{"lineage", "run"}, {"step", 3}}},
                                  {"max_staleness", {{"steps", 1}}},
                                  {"adapter_timeout_ms", 5},
                                  {"adapter", "policy"},
                                  {"prompts", {{1, 2}, {1, 2}, {3}, {3}}}}));
  EXPECT_EQ(asked.choices, 4);
  EXPECT_EQ(asked.prompt_tokens, 3);
  EXPECT_TRUE(asked.stream && asked.usage_in_stream && asked.logprobs);
}

TEST(CompletionRequest, WithoutASeedDrawsAnother) {
  EXPECT_NE(Ask(With(Json::object())).seed, Ask(With(Json::object())).seed);
}

TEST(CompletionRequest, TakesFieldsThatAskForNothing) {
  for (const Json& nothing : std::vector<Json>{{{"echo", false}},
                                               {{"best_of", 1}},
                                               {{"presence_penalty", 0.0}},
                                               {{"repetition_penalty", 1.0}},
                                               {{"logit_bias", Json::object()}},
                                               {{"min_p", 0}},
                                               {{"guided_json", nullptr}},
                                               {{"max_tokens", nullptr}},
                                               {{"logprobs", nullptr}},
                                               {{"stop", nullptr}}}) {
    EXPECT_NO_THROW(Ask(With(nothing))) << nothing;
  }
}

TEST(CompletionRequest, RefusesByNameWhatThisEngineHasNot) {
  const std::vector<std::pair<Json, std::string>> refused = {
      {{{"echo", true}}, "echo: this engine does not do it: expected false or nothing, got true"},
      {{{"best_of", 3}}, "best_of: this engine does not do it"},
      {{{"min_p", 0.05}}, "min_p: this engine does not do it"},
      {{{"guided_json", Json::object()}}, "guided_json: this engine knows no such field"},
      {{{"logprobs", 5}}, "logprobs: this engine has that of the picked token alone"},
      {{{"prompt", "Say hello"}}, "prompt: text is not taken: this engine has no tokenizer. Expected token ids"},
      {{{"prompt", {"Say", "hello"}}}, "prompt: text is not taken"},
      {{{"stop", "\n"}}, "stop: text is not taken"},
      {{{"stop", {"\n"}}}, "stop: text is not taken"}};
  for (const auto& [fields, why] : refused) {
    EXPECT_THAT(ErrorOf([&] { Ask(With(fields)); }, ErrorCode::kUnsupported), StartsWith(why));
  }
  EXPECT_THAT(ErrorOf([] { Ask(With({{"model", "gpt"}})); }, ErrorCode::kNotFound),
              HasSubstr("'llama' or the name of an adapter"));
}

TEST(CompletionRequest, RefusesByNameWhatIsWrong) {
  const std::vector<std::pair<Json, std::string>> wrong = {{{{"prompt", nullptr}}, "prompt: "},
                                                           {{{"prompt", Json::array()}}, "prompt: "},
                                                           {{{"prompt", {1, {2}}}}, "prompt: "},
                                                           {{{"prompt", {{1}, 2}}}, "prompt: "},
                                                           {{{"prompt", {1.5}}}, "prompt: "},
                                                           {{{"prompt", {-1}}}, "prompt: "},
                                                           {{{"prompt", {std::int64_t{1} << 40}}}, "prompt: "},
                                                           {{{"prompt", {{"a", 1}}}}, "prompt: "},
                                                           {{{"max_tokens", 0}}, "max_tokens: "},
                                                           {{{"max_tokens", 2.5}}, "max_tokens: "},
                                                           {{{"max_tokens", "2"}}, "max_tokens: "},
                                                           {{{"n", 0}}, "n: "},
                                                           {{{"n", 1000}}, "n: "},
                                                           {{{"seed", -1}}, "seed: "},
                                                           {{{"seed", UINT64_MAX}}, "seed: "},
                                                           {{{"temperature", "hot"}}, "temperature: "},
                                                           {{{"stream", 1}}, "stream: "},
                                                           {{{"top_k", -2}}, "top_k: "},
                                                           {{{"stop", 3}}, "stop: "},
                                                           {{{"model", 3}}, "model: "},
                                                           {{{"stream_options", 1}}, "stream_options: "}};
  for (const auto& [fields, why] : wrong) {
    EXPECT_THAT(ErrorOf([&] { Ask(With(fields)); }, ErrorCode::kInvalidArgument), StartsWith(why)) << fields;
  }
  Json many = Json::array();
  for (int i = 0; i < 20; ++i) many.push_back({1});
  EXPECT_THAT(ErrorOf([&] { Ask({{"prompt", many}, {"n", 100}}); }, ErrorCode::kInvalidArgument),
              HasSubstr("2000 choices"));
}

TEST(CompletionRequest, RefusesWhatIsNoObjectOfJson) {
  const auto why = [](const std::string& body) {
    return ErrorOf([&] { CompletionRequestFrom(body, kModels); }, ErrorCode::kInvalidArgument);
  };
  for (const char* body : {"", "{", "[]", "3", "\xff", "{\"prompt\": [1,]}", "{} {}"})
    EXPECT_THAT(why(body), StartsWith("the body: ")) << body;
  EXPECT_THAT(why(std::string(100'000, '[')), HasSubstr("too many lists in one another"));
}

}  // namespace
}  // namespace layercast::testing
