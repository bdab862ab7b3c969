#include "engine_side/server/http/completion_request.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "layercast/error.h"
#include "src/base/random_id.h"
#include "src/base/utf8.h"

namespace layercast {
namespace {

constexpr int kDeepest = 8;  // objects and lists in one another, of a request
constexpr std::int64_t kMostN = 128;

// What is read, each in the function that says its name.
constexpr std::string_view kFields[] = {"model",
                                        "prompt",
                                        "max_tokens",
                                        "temperature",
                                        "top_p",
                                        "top_k",
                                        "n",
                                        "seed",
                                        "stop",
                                        "stream",
                                        "logprobs",
                                        "ignore_eos",
                                        "stop_token_ids",
                                        "user",
                                        "max_staleness",
                                        "least_version",
                                        "adapter_timeout_ms",
                                        "stream_options"};

// What others do and this engine does not: taken with the one value that asks for nothing.
struct Neutral {
  std::string_view field;
  Json value;
};
const std::vector<Neutral>& Neutrals() {
  static const std::vector<Neutral> kNeutrals = {{"best_of", 1},
                                                 {"echo", false},
                                                 {"suffix", ""},
                                                 {"logit_bias", Json::object()},
                                                 {"presence_penalty", 0},
                                                 {"frequency_penalty", 0},
                                                 {"repetition_penalty", 1},
                                                 {"min_p", 0},
                                                 {"min_tokens", 0},
                                                 {"return_token_ids", true},
                                                 {"return_tokens_as_token_ids", true},
                                                 {"include_stop_str_in_output", true}};
  return kNeutrals;
}

[[noreturn]] void Wrong(std::string_view field, const std::string& why) {
  throw Error(ErrorCode::kInvalidArgument, std::string(field) + ": " + why);
}

std::string Shown(const Json& value) { return Escaped(value.dump(-1, ' ', false, Json::error_handler_t::replace), 80); }

Json Parsed(std::string_view body) {
  const auto no_deeper = [](int depth, Json::parse_event_t /*event*/, const Json& /*part*/) {
    if (depth > kDeepest) Wrong("the body", "too many lists in one another");
    return true;
  };
  Json json;
  try {
    json = Json::parse(body, no_deeper);
  } catch (const Json::exception& error) {
    Wrong("the body", std::string("expected JSON: ") + error.what());
  }
  if (!json.is_object()) Wrong("the body", "expected an object, got " + std::string(json.type_name()));
  return json;
}

void CheckFields(const Json& body) {
  for (const auto& [name, value] : body.items()) {
    if (std::ranges::find(kFields, name) != std::end(kFields) || value.is_null()) continue;
    const auto neutral = std::ranges::find(Neutrals(), name, &Neutral::field);
    if (neutral == Neutrals().end()) {
      throw Error(ErrorCode::kUnsupported, Escaped(name, 80) + ": this engine knows no such field");
    }
    if (value == neutral->value) continue;
    throw Error(ErrorCode::kUnsupported, name + ": this engine does not do it: expected " + neutral->value.dump() +
                                             " or nothing, got " + Shown(value));
  }
}

bool IsGiven(const Json& body, const char* field) { return body.contains(field) && !body[field].is_null(); }

std::int64_t Whole(const Json& body, const char* field, std::int64_t otherwise, std::int64_t least,
                   std::int64_t most = std::numeric_limits<std::int64_t>::max()) {
  if (!IsGiven(body, field)) return otherwise;
  const Json& value = body[field];
  const bool fits = value.is_number_integer() && !(value.is_number_unsigned() && value > std::uint64_t{INT64_MAX});
  if (!fits || value < least || value > most) {
    Wrong(field, "expected a whole number of " + std::to_string(least) +
                     (most < INT64_MAX ? " to " + std::to_string(most) : " or more") + ", got " + Shown(value));
  }
  return value.get<std::int64_t>();
}

double Number(const Json& body, const char* field, double otherwise) {
  if (!IsGiven(body, field)) return otherwise;
  if (!body[field].is_number()) Wrong(field, "expected a number, got " + Shown(body[field]));
  return body[field].get<double>();
}

bool Flag(const Json& body, const char* field) {
  if (!IsGiven(body, field)) return false;
  if (!body[field].is_boolean()) Wrong(field, "expected true or false, got " + Shown(body[field]));
  return body[field].get<bool>();
}

[[noreturn]] void RefuseText(const char* field) {
  throw Error(ErrorCode::kUnsupported,
              std::string(field) + ": text is not taken: this engine has no tokenizer. Expected token ids");
}

// A list of token ids. Text is refused by its name.
std::vector<std::int32_t> Tokens(const Json& list, const char* field) {
  std::vector<std::int32_t> tokens;
  for (const Json& token : list) {
    if (token.is_string()) RefuseText(field);
    if (!token.is_number_integer() || token < 0 || token > INT32_MAX)
      Wrong(field, "expected token ids, got " + Shown(token));
    tokens.push_back(token.get<std::int32_t>());
  }
  return tokens;
}

// Takes the prompts out of the body, which may be long.
std::vector<std::vector<std::int32_t>> Prompts(Json& body) {
  if (!IsGiven(body, "prompt")) Wrong("prompt", "expected token ids, got none");
  const Json prompt = std::move(body["prompt"]);
  body.erase("prompt");
  if (prompt.is_string()) RefuseText("prompt");
  if (!prompt.is_array() || prompt.empty()) Wrong("prompt", "expected a list of token ids, or of such lists");
  if (!prompt.front().is_array()) return {Tokens(prompt, "prompt")};
  std::vector<std::vector<std::int32_t>> prompts;
  for (const Json& one : prompt) {
    if (!one.is_array()) Wrong("prompt", "expected lists of token ids alone, got " + Shown(one));
    prompts.push_back(Tokens(one, "prompt"));
  }
  return prompts;
}

Json StopTokens(const Json& body) {
  Json stop = Json::array();
  for (const char* field : {"stop", "stop_token_ids"}) {
    if (!IsGiven(body, field)) continue;
    if (body[field].is_string()) RefuseText(field);
    if (!body[field].is_array()) Wrong(field, "expected a list of token ids, got " + Shown(body[field]));
    for (const std::int32_t token : Tokens(body[field], field)) stop.push_back(token);
  }
  return stop;
}

// OpenAI's counts the alternatives that are wanted beside the token that was picked; others have a flag.
bool WantsLogprobs(const Json& body) {
  if (!IsGiven(body, "logprobs")) return false;
  const Json& value = body["logprobs"];
  if (value.is_boolean()) return value.get<bool>();
  if (value == 0) return true;
  throw Error(ErrorCode::kUnsupported,
              "logprobs: this engine has that of the picked token alone: expected 0 or true, got " + Shown(value));
}

// The adapter that `model` names; empty: the base.
std::string AdapterOf(const std::string& model, const ServedModels& models) {
  if (model == models.base) return "";
  if (std::ranges::find(models.adapters, model) != models.adapters.end()) return model;
  throw Error(ErrorCode::kNotFound, "model: there is no " + Quote(model) + " here: expected " + Quote(models.base) +
                                        (models.adapters.empty() ? "" : " or the name of an adapter that is served"));
}

// OpenAI's top_k does not exist; others say "all" by -1 or by 0.
std::int64_t TopK(const Json& body) { return std::max<std::int64_t>(Whole(body, "top_k", 0, -1), 0); }

Json GenerateParams(const Json& body, const CompletionRequest& request) {
  Json params = {{"max_new", Whole(body, "max_tokens", 16, 1)},
                 {"temperature", Number(body, "temperature", 1)},
                 {"top_p", Number(body, "top_p", 1)},
                 {"top_k", TopK(body)},
                 {"seed", request.seed},
                 {"stop_tokens", StopTokens(body)},
                 {"ignore_eos", Flag(body, "ignore_eos")},
                 {"logprobs", request.logprobs}};
  for (const char* field : {"least_version", "max_staleness", "adapter_timeout_ms"}) {
    if (IsGiven(body, field)) params[field] = body[field];
  }
  return params;
}

bool WantsUsage(const Json& body) {
  if (!IsGiven(body, "stream_options")) return false;
  if (!body["stream_options"].is_object()) Wrong("stream_options", "expected an object");
  return Flag(body["stream_options"], "include_usage");
}

}  // namespace

CompletionRequest CompletionRequestFrom(std::string_view text, const ServedModels& models) {
  Json body = Parsed(text);
  CheckFields(body);
  CompletionRequest request;
  if (IsGiven(body, "model") && !body["model"].is_string()) Wrong("model", "expected a name");
  request.model = IsGiven(body, "model") ? body["model"].get<std::string>() : models.base;
  const std::string adapter = AdapterOf(request.model, models);
  std::vector<std::vector<std::int32_t>> prompts = Prompts(body);
  const auto n = static_cast<std::size_t>(Whole(body, "n", 1, 1, kMostN));
  request.choices = prompts.size() * n;
  if (request.choices > CompletionRequest::kMostChoices) {
    Wrong("prompt", std::to_string(request.choices) + " choices, expected at most " +
                        std::to_string(CompletionRequest::kMostChoices));
  }
  // Without a seed each request draws anew: the same prompt again is to be another sample.
  constexpr auto kMostSeed = static_cast<std::int64_t>(INT64_MAX - CompletionRequest::kMostChoices);
  const auto drawn = static_cast<std::int64_t>(RandomId() % (std::uint64_t{1} << 53));
  request.seed = static_cast<std::uint64_t>(Whole(body, "seed", drawn, 0, kMostSeed));
  request.logprobs = WantsLogprobs(body);
  request.stream = Flag(body, "stream");
  request.usage_in_stream = WantsUsage(body);
  request.generate = GenerateParams(body, request);
  if (!adapter.empty()) request.generate["adapter"] = adapter;
  Json repeated = Json::array();
  for (const std::vector<std::int32_t>& prompt : prompts) {
    request.prompt_tokens += prompt.size();
    for (std::size_t i = 0; i < n; ++i) repeated.push_back(prompt);
  }
  request.generate["prompts"] = std::move(repeated);
  return request;
}

}  // namespace layercast
