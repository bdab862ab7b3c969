// Which paths of the engine's host those may name who call it. Used by the service, for every method.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/base/paths/allowed_folders.h"
#include "src/control/rpc.h"

namespace layercast {

// Value; immutable.
class RequestPaths {
 public:
  // Nobody may name a path, if no folder is allowed and the endpoint is not a file, which only its user may open.
  // Throws kInvalidArgument on a folder that is not there.
  RequestPaths(const std::vector<std::string>& allowed, const std::string& endpoint);

  // A call's params with every path in them as it was found to be allowed. Throws kPermissionDenied, naming a path that
  // is not.
  Json Confined(Json params) const;

 private:
  enum class Use { kRead, kWrite };
  void Confine(Json& params, const char* field, Use use) const;
  std::string Resolved(const std::string& path, Use use) const;

  bool any_ = false;
  AllowedFolders allowed_;
};

}  // namespace layercast
