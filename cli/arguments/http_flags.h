// --http-bind and what goes with it, of an engine.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "engine_side/server/http/engine_door.h"

namespace layercast::cli {

inline void DeclareHttp(CLI::App& app, EngineDoorOptions& door) {
  CLI::Option* const at =
      app.add_option("--http-bind", door.bind, "HOST:PORT where HTTP is answered (/v1/completions); port 0 picks one");
  app.add_option("--http-key-file", door.key_file,
                 "Of --http-bind: a file with the bearer key that whoever asks must have; also beyond loopback then")
      ->needs(at);
  app.add_flag("--dashboard", door.dashboard, "Of --http-bind: also a page that shows the engine, at /dashboard")
      ->needs(at);
}

// ", HTTP at http://127.0.0.1:8000", or nothing for null.
inline std::string HttpText(const Json& address) {
  return address.is_null() ? "" : ", HTTP at http://" + address.get<std::string>();
}

}  // namespace layercast::cli
