#include "engine_side/server/generate/sequence.h"

#include <algorithm>

namespace layercast {

const char* Sequence::Finish() const {
  if (!tokens.empty() && std::ranges::find(request.stop_tokens, tokens.back()) != request.stop_tokens.end()) {
    return "stop";
  }
  return static_cast<std::int64_t>(tokens.size()) >= request.max_new ? "length" : nullptr;
}

std::vector<std::int32_t> Sequence::NextTokens() const {
  std::vector<std::int32_t> next;
  for (std::size_t i = cached; i < request.prompt.size() + tokens.size(); ++i) {
    next.push_back(i < request.prompt.size() ? request.prompt[i] : tokens[i - request.prompt.size()]);
  }
  return next;
}

Json Sequence::ToJson(const char* finish, bool with_logprobs) const {
  Json json = {{"tokens", tokens}};
  if (with_logprobs) json["logprobs"] = logprobs;
  json["finish"] = finish;
  json["spans"] = Json::array();
  for (std::size_t i = 0; i < versions.size(); ++i) {
    if (i > 0 && versions[i] == versions[i - 1]) {
      json["spans"].back()["end"] = i + 1;
    } else {
      json["spans"].push_back({{"start", i}, {"end", i + 1}, {"version", VersionToJson(versions[i].base)}});
      if (versions[i].adapter) json["spans"].back()["adapter"] = VersionToJson(versions[i].adapter);
    }
  }
  return json;
}

}  // namespace layercast
