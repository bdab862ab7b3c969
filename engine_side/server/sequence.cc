#include "engine_side/server/sequence.h"

#include <algorithm>

namespace layercast {

bool Sequence::finished() const {
  if (static_cast<std::int64_t>(tokens.size()) >= request.max_new) return true;
  return !tokens.empty() &&
         std::find(request.stop_tokens.begin(), request.stop_tokens.end(), tokens.back()) != request.stop_tokens.end();
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
      json["spans"].push_back({{"start", i}, {"end", i + 1}, {"version", VersionToJson(versions[i])}});
    }
  }
  return json;
}

}  // namespace layercast
