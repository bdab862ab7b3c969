#include "engine_side/server/generate/generate_call.h"

#include <string>
#include <utility>

#include "engine_side/engine/sampler.h"
#include "layercast/error.h"
#include "src/base/run_at.h"

namespace layercast {
namespace {

using Prompt = std::vector<std::int32_t>;

[[noreturn]] void Refuse(const std::string& why) { throw Error(ErrorCode::kInvalidArgument, "generate: " + why); }

std::vector<Prompt> PromptsOf(const Json& params) {
  if (params.contains("tokens")) return {params["tokens"].get<Prompt>()};
  return params.at("prompts").get<std::vector<Prompt>>();
}

void CheckRequest(const SequenceRequest& request, const ModelConfig& config, std::int64_t max_model_len) {
  if (request.prompt.empty()) Refuse("a prompt without tokens");
  for (const std::int32_t token : request.prompt) {
    if (token >= 0 && token < config.vocab_size) continue;
    Refuse("token " + std::to_string(token) + ", expected 0 to " + std::to_string(config.vocab_size - 1));
  }
  if (request.max_new < 1) Refuse("max_new is " + std::to_string(request.max_new) + ", expected at least 1");
  const auto prompt = static_cast<std::int64_t>(request.prompt.size());
  if (request.max_new > max_model_len - prompt) {
    Refuse(std::to_string(prompt) + " tokens and " + std::to_string(request.max_new) + " new ones, " +
           (max_model_len == config.ContextLength() ? "the model has " : "this engine computes ") +
           std::to_string(max_model_len) + " positions");
  }
  CheckSamplingParams({.temperature = request.temperature, .top_p = request.top_p, .top_k = request.top_k, .seed = 0});
}

// The tokens after which a sequence ends: those of the request, and the model's own unless the request says otherwise.
std::vector<std::int32_t> StopTokens(const Json& params, const ModelConfig& config) {
  std::vector<std::int32_t> stop = params.value("stop_tokens", Prompt());
  if (params.value("ignore_eos", false)) return stop;
  for (const std::int64_t token : config.eos_token_ids) {
    if (token >= 0 && token < config.vocab_size)
      stop.push_back(static_cast<std::int32_t>(token));  // else it never comes
  }
  return stop;
}

}  // namespace

bool Reaches(const std::optional<Version>& served, const Version& least) {
  return served && served->lineage == least.lineage && served->step >= least.step;
}

Version LeastVersionFrom(const Json& json) {
  return {json.at("lineage").get<std::string>(), json.at("step").get<std::uint64_t>(), {}};
}

void CheckLeastVersion(const Json& params, const std::optional<Version>& served) {
  if (!params.contains("least_version") || params["least_version"].is_null()) return;
  const Version least = LeastVersionFrom(params["least_version"]);
  if (Reaches(served, least)) return;
  throw Error(ErrorCode::kFailedPrecondition, "expected " + RunAt(least) +
                                                  " or a later version to answer, this engine serves " +
                                                  (served ? served->ToString() : "none"));
}

std::vector<SequenceRequest> SequencesOf(const Json& params, const ModelConfig& config, std::int64_t max_model_len) {
  std::vector<SequenceRequest> requests;
  for (Prompt& prompt : PromptsOf(params)) {
    SequenceRequest request;
    request.prompt = std::move(prompt);
    request.max_new = params.value("max_new", std::int64_t{16});
    request.temperature = params.value("temperature", 0.0);
    request.top_p = params.value("top_p", 1.0);
    request.top_k = params.value("top_k", std::int64_t{0});
    request.seed = params.value("seed", std::uint64_t{0}) + requests.size();
    request.stop_tokens = StopTokens(params, config);
    request.adapter = params.value("adapter", std::string());
    request.adapter_timeout = MillisecondsFrom(params, "adapter_timeout_ms", request.adapter_timeout);
    CheckRequest(request, config, max_model_len);
    requests.push_back(std::move(request));
  }
  if (requests.empty()) Refuse("expected a prompt, got none");
  return requests;
}

GenerateAnswers::GenerateAnswers(const Json& params, std::size_t sequences, RpcReply reply)
    : single_(params.contains("tokens")),
      logprobs_(params.value("logprobs", false)),
      reply_(std::move(reply)),
      answers_(sequences),
      left_(sequences) {}

void GenerateAnswers::Done(std::size_t index, const Sequence& sequence, const char* finish) {
  const std::lock_guard lock(mutex_);
  answers_[index] = sequence.ToJson(finish, logprobs_);
  if (sequence.error && !error_) error_ = sequence.error;
  if (--left_ > 0) return;
  if (error_) return reply_.Failure(*error_);
  reply_.Result(single_ ? answers_.front() : Json{{"answers", answers_}});
}

}  // namespace layercast
