#include "engine_side/server/request_paths.h"

#include <utility>

#include "layercast/error.h"
#include "src/base/utf8.h"

namespace layercast {

RequestPaths::RequestPaths(const std::vector<std::string>& allowed, const std::string& endpoint)
    : any_(allowed.empty() && endpoint.starts_with("ipc://")), allowed_(allowed, "--allow-path") {}

// By their names, whatever the method: RPC.md uses each of them for one thing.
Json RequestPaths::Confined(Json params) const {
  if (any_) return params;
  Confine(params, "weights_path", Use::kRead);
  Confine(params, "store", Use::kRead);
  Confine(params, "directory", Use::kWrite);
  if (params.contains("secondary_weights")) {
    for (Json& more : params["secondary_weights"]) Confine(more, "path", Use::kRead);
  }
  if (params.contains("adapter") && params["adapter"].is_object())
    Confine(params["adapter"], "weights_path", Use::kRead);
  return params;
}

// What is no text is refused where it is read.
void RequestPaths::Confine(Json& params, const char* field, Use use) const {
  if (!params.is_object() || !params.contains(field) || !params[field].is_string()) return;
  params[field] = Resolved(params[field].get<std::string>(), use);
}

std::string RequestPaths::Resolved(const std::string& path, Use use) const {
  if (allowed_.empty()) {
    throw Error(ErrorCode::kPermissionDenied, Quote(path) +
                                                  ": this engine takes no paths from those who call it over TCP (to "
                                                  "let them name what is in DIR: `layercast serve --allow-path DIR`)");
  }
  return use == Use::kWrite ? allowed_.ToWrite(path) : allowed_.ToRead(path);
}

}  // namespace layercast
